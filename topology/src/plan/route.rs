//! The way of one chunk.

use crate::id::{Rank, WorldSize};

/// Two trees over all ranks, both rooted at the chunk's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    owner: Rank,
    /// By rank: to whom it sends its sum; `None` for the owner.
    up: Vec<Option<Rank>>,
    /// By rank: from whom it gets the result; `None` for the owner.
    down: Vec<Option<Rank>>,
    direct: bool,
}

impl Route {
    /// # Panics
    /// If the trees don't lead from every rank to the owner: a plan that builds such a route is wrong.
    pub(crate) fn new(owner: Rank, up: Vec<Option<Rank>>, down: Vec<Option<Rank>>, direct: bool) -> Self {
        let route = Self { owner, up, down, direct };
        for tree in [&route.up, &route.down] {
            assert!(is_tree(tree, owner), "all ways of a route end at its owner");
        }
        route
    }

    /// The rank that finishes the chunk's sum.
    pub fn owner(&self) -> Rank {
        self.owner
    }

    /// To whom `rank` sends its sum; nobody, if it is the owner.
    pub fn up(&self, rank: Rank) -> Option<Rank> {
        self.up[rank.0 as usize]
    }

    /// From whom `rank` gets the result; nobody, if it is the owner.
    pub fn down(&self, rank: Rank) -> Option<Rank> {
        self.down[rank.0 as usize]
    }

    /// Those whose sums `rank` adds, in order of rank.
    pub fn contributors(&self, rank: Rank) -> Vec<Rank> {
        children(&self.up, rank)
    }

    /// Those to whom `rank` passes the result on, in order of rank.
    pub fn receivers(&self, rank: Rank) -> Vec<Rank> {
        children(&self.down, rank)
    }

    /// Whether a rank that adds others' contributions to its own does so at once, so that its own is rounded by a lossy
    /// codec as theirs are. Else sums are rounded hop by hop.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// All hops, contributions first: from, to.
    pub fn hops(&self) -> impl Iterator<Item = (Rank, Rank)> + '_ {
        let up = ranks(&self.up).filter_map(|(rank, to)| to.map(|to| (rank, to)));
        let down = ranks(&self.down).filter_map(|(rank, from)| from.map(|from| (from, rank)));
        up.chain(down)
    }

    /// The result's way with another origin: from `root` to the owner as its sums go, then on as before to all that were not on the
    /// way. So it takes no link that a reduction does not.
    pub(crate) fn rooted_at(self, root: Rank) -> Self {
        let mut down = self.down;
        let mut at = root;
        while let Some(next) = self.up[at.0 as usize] {
            down[next.0 as usize] = Some(at);
            at = next;
        }
        down[root.0 as usize] = None;
        Self::new(root, down.clone(), down, self.direct)
    }
}

/// Chunk `c` starts at rank `c` and ends, after `n - 1` hops, at rank `c - 1`; the result goes on round the ring.
pub(crate) fn ring(world: WorldSize, chunk: Rank) -> Route {
    let owner = world.previous(chunk);
    let up = world.ranks().map(|rank| (rank != owner).then(|| world.next(rank))).collect();
    let down = world.ranks().map(|rank| (rank != owner).then(|| world.previous(rank))).collect();
    Route::new(owner, up, down, false)
}

/// Chunk `c` belongs to rank `c`; everybody sends to it and receives from it.
pub(crate) fn mesh(world: WorldSize, chunk: Rank) -> Route {
    let star: Vec<Option<Rank>> = world.ranks().map(|rank| (rank != chunk).then_some(chunk)).collect();
    Route::new(chunk, star.clone(), star, true)
}

fn ranks(tree: &[Option<Rank>]) -> impl Iterator<Item = (Rank, Option<Rank>)> + '_ {
    (0..).map(Rank).zip(tree.iter().copied())
}

fn children(tree: &[Option<Rank>], of: Rank) -> Vec<Rank> {
    ranks(tree).filter(|(_, parent)| *parent == Some(of)).map(|(rank, _)| rank).collect()
}

/// Whether all ways end at `root`, each rank looked at once.
fn is_tree(tree: &[Option<Rank>], root: Rank) -> bool {
    let mut known = vec![false; tree.len()];
    let at = |rank: Rank| rank.0 as usize;
    if tree[at(root)].is_some() {
        return false;
    }
    known[at(root)] = true;
    for (rank, _) in ranks(tree) {
        let (mut way, mut next) = (Vec::new(), rank);
        while !known[at(next)] {
            way.push(next);
            match tree[at(next)] {
                Some(parent) if way.len() < tree.len() => next = parent,
                Some(_) | None => return false,
            }
        }
        way.into_iter().for_each(|rank| known[at(rank)] = true);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_and_second_roots_are_found() {
        let tree = |parents: &[i64]| -> Vec<Option<Rank>> {
            parents.iter().map(|parent| u32::try_from(*parent).ok().map(Rank)).collect()
        };
        assert!(is_tree(&tree(&[-1]), Rank(0)));
        assert!(is_tree(&tree(&[1, -1, 0, 0]), Rank(1)));
        for wrong in [&[1i64, 0, -1][..], &[-1, -1, 0], &[0, 0, 1], &[-1, 2, 1], &[1, 2, 0]] {
            assert!((0..3).all(|root| !is_tree(&tree(wrong), Rank(root))), "{wrong:?}");
        }
    }
}
