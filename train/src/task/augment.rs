//! Images that differ each time they are trained on.

use starling_run::AugmentPolicy;
use starling_topology::SplitMix64Generator;

/// Changes an image `[channels, height, width]` in these ways, as the generator says.
pub(crate) fn augment(
    ways: &[AugmentPolicy],
    shape: [usize; 3],
    image: &mut [f32],
    generator: &mut SplitMix64Generator,
) {
    let [_, height, width] = shape;
    for way in ways {
        match way {
            AugmentPolicy::Crop => {
                let [down, right] = [height, width].map(|size| offset(size, generator));
                image.chunks_exact_mut(height * width).for_each(|channel| shift(channel, width, down, right));
            }
            AugmentPolicy::Flip if generator.below(2) == 1 => image.chunks_exact_mut(width).for_each(<[f32]>::reverse),
            AugmentPolicy::Flip => {}
        }
    }
}

/// By how much an image of this size is moved: up to an eighth, and at least up to 1, in either direction.
fn offset(size: usize, generator: &mut SplitMix64Generator) -> isize {
    let most = (size / 8).max(1);
    let choices = u32::try_from(2 * most + 1).expect("invariant: an image's size fits its description");
    generator.below(choices) as isize - most as isize
}

/// Moves the rows of one channel. What comes in is 0.
fn shift(channel: &mut [f32], width: usize, down: isize, right: isize) {
    let before = channel.to_vec();
    let height = before.len() / width;
    for (row, line) in channel.chunks_exact_mut(width).enumerate() {
        let from = row.checked_add_signed(-down).filter(|row| *row < height);
        for (column, pixel) in line.iter_mut().enumerate() {
            let place = from.zip(column.checked_add_signed(-right).filter(|column| *column < width));
            *pixel = place.map_or(0.0, |(row, column)| before[row * width + column]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(ways: &[AugmentPolicy], shape: [usize; 3], image: &[f32]) -> BTreeSet<Vec<u32>> {
        let one = |seed| {
            let mut changed = image.to_vec();
            augment(ways, shape, &mut changed, &mut SplitMix64Generator::new(seed));
            changed.into_iter().map(f32::to_bits).collect()
        };
        (0..200).map(one).collect()
    }

    fn bits(image: &[f32]) -> Vec<u32> {
        image.iter().copied().map(f32::to_bits).collect()
    }

    #[test]
    fn an_image_is_mirrored_or_not() {
        let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mirrored = [3.0, 2.0, 1.0, 6.0, 5.0, 4.0];
        assert_eq!(
            all(&[AugmentPolicy::Flip], [1, 2, 3], &image),
            BTreeSet::from([image, mirrored].map(|image| bits(&image)))
        );
        // Each channel in its place.
        let channels = all(&[AugmentPolicy::Flip], [2, 1, 3], &image);
        assert_eq!(channels, BTreeSet::from([image, mirrored].map(|image| bits(&image))));
        assert_eq!(all(&[], [1, 2, 3], &image), BTreeSet::from([bits(&image)]));
    }

    #[test]
    fn an_image_is_moved_by_up_to_an_eighth_in_all_directions() {
        let image: Vec<f32> = (1..=9).map(|pixel| pixel as f32).collect();
        let moved = all(&[AugmentPolicy::Crop], [1, 3, 3], &image);
        assert_eq!(moved.len(), 9, "one up or down, left or right, and all of these");
        for expected in [
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 4.0, 5.0],
            [5.0, 6.0, 0.0, 8.0, 9.0, 0.0, 0.0, 0.0, 0.0],
            [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0, 0.0, 0.0],
        ] {
            assert!(moved.contains(&bits(&expected)), "{expected:?}");
        }
        let large: Vec<f32> = (0..28 * 28).map(|pixel| pixel as f32).collect();
        assert!(
            (45..=49).contains(&all(&[AugmentPolicy::Crop], [1, 28, 28], &large).len()),
            "up to three in each direction"
        );
    }
}
