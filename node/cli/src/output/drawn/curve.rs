//! A curve over the steps of a run, in dots of Braille.

use textplots::{Chart, LabelBuilder, LabelFormat, Plot, Shape};

/// The last of its dots: of 60 columns, and of 10 lines.
const SIZE: (u32, u32) = (119, 39);
/// Fewer points are no curve.
pub const LEAST_POINTS: usize = 8;

/// Draws one curve, as its values by step; empty if it has too few points for one.
pub fn curve(points: &[(u64, f64)]) -> String {
    if points.len() < LEAST_POINTS {
        return String::new();
    }
    let points: Vec<(f32, f32)> = points.iter().map(|(step, value)| (*step as f32, *value as f32)).collect();
    let [(first, _), .., (last, _)] = points[..] else { return String::new() };
    let range = |(least, most): (f32, f32), (_, value): &(f32, f32)| (least.min(*value), most.max(*value));
    let (least, most) = points.iter().fold((f32::INFINITY, f32::NEG_INFINITY), range);
    // A flat line has a range, too.
    let most = if most > least { most } else { least + least.abs().max(1.0) };
    let shape = Shape::Lines(&points);
    let mut chart = Chart::new_with_y_range(SIZE.0, SIZE.1, first, last, least, most);
    let mut chart = chart.lineplot(&shape);
    chart.figures();
    chart = chart.x_label_format(LabelFormat::Custom(Box::new(|step| format!("step {step:.0}"))));
    chart.y_label_format(LabelFormat::Custom(Box::new(|value| format!("{value:.4}")))).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_that_falls_ends_below_where_it_began() {
        let falling: Vec<_> = (0..100).map(|step| (step, 2.0 - step as f64 / 50.0)).collect();
        let drawn = curve(&falling);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 11, "{drawn}");
        assert!(lines[0].ends_with(" 2.0000") && lines[9].ends_with(" 0.0200"), "{drawn}");
        assert!(lines[10].starts_with("step 0") && lines[10].ends_with("step 99"), "{drawn}");
        let is_drawn = |line: &str, at: usize| line.chars().nth(at).is_some_and(|dots| dots > '\u{2800}');
        assert!(is_drawn(lines[0], 1) && !is_drawn(lines[0], 55) && is_drawn(lines[9], 58), "{drawn}");
    }

    #[test]
    fn what_has_no_range_is_drawn_or_left_out() {
        assert_eq!(curve(&[]), "");
        assert_eq!(curve(&[(3, 1.0), (4, 2.0)]), "");
        assert!(curve(&[0, 1, 2, 3, 4, 5, 6, 7].map(|step| (step, 0.0))).contains("0.0000"));
    }
}
