//! What the links of a view are taken to cost.

use crate::id::Rank;
use crate::plan::costs::link_costs::{CostTable, Link};
use crate::view::View;

/// What a link is taken to cost as long as nobody has measured any: that of a wired local network.
const ASSUMED: Link = Link { delay_us: 200, bytes_per_second: 125_000_000 };

/// The link between each ordered pair of members, by place among the sorted members.
///
/// What was measured counts; where one direction was not, the other one does; where neither was, as with a newcomer, the
/// link is taken for an ordinary one of this view: one that is too good would draw all traffic to it. A severed pair has no
/// link, whatever was measured.
pub fn view_costs(view: &View) -> CostTable {
    let ordinary = view.costs().map_or(ASSUMED, ordinary);
    let members = view.members();
    let measured = |from, to| view.costs().map(|costs| costs.link(from, to)).filter(|link| link.is_up());
    let link = |from: Rank, to: Rank| {
        if view.is_severed(members[from.0 as usize], members[to.0 as usize]) {
            return Link::NONE;
        }
        measured(from, to).or_else(|| measured(to, from)).unwrap_or(ordinary)
    };
    CostTable::from_fn(view.world_size(), link).expect("invariant: views and measured links are within bounds")
}

/// The median of what was measured: of the delays, and of the rates.
fn ordinary(costs: &CostTable) -> Link {
    let ranks = || costs.world_size().ranks();
    let links = ranks().flat_map(|from| ranks().map(move |to| costs.link(from, to)));
    let (mut delays, mut rates): (Vec<u32>, Vec<u64>) =
        links.filter(|link| link.is_up()).map(|link| (link.delay_us, link.bytes_per_second)).unzip();
    delays.sort_unstable();
    rates.sort_unstable();
    let middle = delays.len() / 2;
    delays.get(middle).zip(rates.get(middle)).map_or(ASSUMED, |(delay_us, bytes_per_second)| Link {
        delay_us: *delay_us,
        bytes_per_second: *bytes_per_second,
    })
}
