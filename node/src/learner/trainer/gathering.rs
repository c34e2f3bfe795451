//! What a contribution is put together of, where leaves compute parts of the share.

use starling_run::Gradient;

/// The parts that count so far: their sum, each times its samples.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    sums: Vec<f32>,
    weight: u64,
    /// Whether a part could not be computed: then nothing of the share is brought.
    has_given_up: bool,
    /// What falls to this member of the held-out samples, where members evaluate together: leaves know nothing of it, and all of the share may be theirs.
    held_out: Vec<f32>,
    /// What was computed here last, until it counts or is dropped.
    own: Option<(u64, Gradient)>,
}

impl Gathering {
    /// The last of its numbers will be these, whoever computes the others.
    pub(super) fn tell_of_held_out(&mut self, figures: Vec<f32>) {
        self.held_out = figures;
    }

    /// Forgets all but these, and memory.
    pub(super) fn clear(&mut self) {
        self.sums.clear();
        (self.weight, self.has_given_up, self.own) = (0, false, None);
    }

    /// This part was computed here, as `number`.
    pub(super) fn keep(&mut self, number: u64, part: Gradient) {
        self.own = Some((number, part));
    }

    /// It counts.
    pub(super) fn count(&mut self, number: u64) {
        let Some((_, part)) = self.own.take_if(|(own, _)| *own == number) else { return };
        if part.has_given_up() {
            self.has_given_up = true;
        } else if part.weight() > 0 {
            let values = part.values();
            self.add(part.weight(), &values);
        }
    }

    /// So does what a leaf has brought, the mean of `weight` samples.
    pub(super) fn add(&mut self, weight: u64, numbers: &[f32]) {
        // Exact: a batch has at most 2^20 samples.
        let factor = weight as f32;
        if self.sums.is_empty() {
            self.sums.extend(numbers.iter().map(|number| number * factor));
        } else {
            self.sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number * factor);
        }
        self.weight += weight;
    }

    /// Writes the mean of all into `gradient`, which is empty.
    pub(super) fn finish(&mut self, gradient: &Gradient) {
        if self.has_given_up {
            gradient.give_up();
        } else if self.weight == 0 {
            gradient.set_nothing();
        } else {
            let total = self.weight as f32;
            self.sums.iter_mut().for_each(|sum| *sum /= total);
            let at = self.sums.len().saturating_sub(self.held_out.len());
            self.sums[at..].copy_from_slice(&self.held_out);
            gradient.prepend(self.weight, std::iter::once(&self.sums[..]));
        }
        // They are means by now.
        self.sums.clear();
        self.weight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(weight: u64, values: [f32; 3]) -> Gradient {
        let part = Gradient::new(2);
        part.prepend(weight, std::iter::once(&values[..]));
        part
    }

    #[test]
    fn the_mean_is_weighted_and_what_is_dropped_does_not_count() {
        let (mut gathering, gradient) = (Gathering::default(), Gradient::new(2));
        gathering.keep(1, part(2, [1.0, 2.0, 0.5]));
        gathering.count(1);
        gathering.add(6, &[5.0, 2.0, 1.5]);
        gathering.keep(2, part(9, [9.0; 3]));
        gathering.count(3);
        gathering.finish(&gradient);
        assert_eq!((gradient.weight(), gradient.values()), (8, vec![4.0, 2.0, 1.25]));
    }

    #[test]
    fn what_falls_to_the_member_of_held_out_samples_stays_as_it_is() {
        let (mut gathering, gradient) = (Gathering::default(), Gradient::new(2));
        gathering.tell_of_held_out(vec![8.0]);
        gathering.add(3, &[1.0, 1.0, 0.0]);
        gathering.keep(1, part(1, [5.0, 1.0, 8.0]));
        gathering.count(1);
        gathering.finish(&gradient);
        assert_eq!((gradient.weight(), gradient.values()), (4, vec![2.0, 1.0, 8.0]));
        // Nothing of it was computed here.
        let gradient = Gradient::new(2);
        gathering.clear();
        gathering.add(3, &[1.0, 1.0, 0.0]);
        gathering.finish(&gradient);
        assert_eq!(gradient.values(), vec![1.0, 1.0, 8.0]);
    }

    #[test]
    fn a_part_that_was_given_up_takes_all_along_and_nothing_is_nothing() {
        let (mut gathering, gradient) = (Gathering::default(), Gradient::new(2));
        gathering.add(3, &[1.0; 3]);
        let given_up = Gradient::new(2);
        given_up.give_up();
        gathering.keep(1, given_up);
        gathering.count(1);
        gathering.finish(&gradient);
        assert!(gradient.has_given_up() && gradient.weight() == 0);
        let gradient = Gradient::new(2);
        gathering.clear();
        gathering.finish(&gradient);
        assert_eq!((gradient.has_given_up(), gradient.weight(), gradient.ready_from()), (false, 0, 0));
    }
}
