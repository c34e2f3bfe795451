//! Whether a view's plan is still the one to follow.

use crate::plan::PlanPolicy;
use crate::plan::costs::view_costs::view_costs;
use crate::plan::estimate::{Bucket, Estimate};
use crate::plan::groups::GroupTable;
use crate::view::View;
use crate::view::ring::Ring;

/// By how many hundredths another plan must be faster to be worth a change of view.
const GAIN_PERCENT: u128 = 20;

/// And by how many nanoseconds. A change of view takes as long as some hundred such gains, and less than this is the noise of
/// what was measured.
const GAIN_NS: u128 = 2_000_000;

/// Whether the members of `view` would reduce `bucket` much faster in `next`: the same members with newer costs. Both plans
/// are judged by the newer costs.
pub(crate) fn is_worth_it(policy: PlanPolicy, bucket: Bucket, view: &View, next: &View) -> bool {
    let costs = view_costs(next);
    let time = |view: &View| {
        let ring = Ring::plan(view);
        let (agreed, costs) = (policy.agree_over(&ring, view, bucket), ring.arrange(&costs));
        let sites = GroupTable::detect(&costs);
        u128::from(Estimate::new(&costs, sites.as_ref(), &agreed.plan, &agreed.weights, bucket).total_ns())
    };
    let (present, best) = (time(view), time(next));
    best + GAIN_NS <= present && best * 100 <= present * (100 - GAIN_PERCENT)
}
