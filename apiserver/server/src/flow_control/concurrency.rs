//! Dividing seats between priority levels: each gets the same proportion of its target, within its bounds.

/// A smaller target is taken to be this: nothing can be a proportion of nothing.
const MIN_TARGET: f64 = 0.001;
const EPSILON: f64 = 1e-7;

/// One level's wish.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LevelDemand {
    pub(super) target: f64,
    pub(super) lower: f64,
    pub(super) upper: f64,
}

/// The share of each level, and the proportion.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Division {
    pub(super) shares: Vec<f64>,
    pub(super) proportion: f64,
}

/// Divides the sum; `None` where bounds contradict each other or the sum. The shares are the only ones that sum up to it and of
/// which each is the proportion of its target, or the bound that keeps it from being that.
pub(super) fn divide(sum: f64, demands: &[LevelDemand]) -> Option<Division> {
    let is_sound = |demand: &LevelDemand| {
        demand.lower >= 0.0 && demand.target >= demand.lower && demand.upper >= demand.lower
    };
    let (lower, upper) = demands.iter().fold((0.0, 0.0), |(lower, upper), demand| {
        (lower + demand.lower, upper + demand.upper)
    });
    if sum < 0.0 || !demands.iter().all(is_sound) || lower - sum > EPSILON || sum - upper > EPSILON {
        return None;
    }
    let target = |demand: &LevelDemand| demand.target.max(MIN_TARGET);
    let share = |demand: &LevelDemand, proportion: f64| {
        (proportion * target(demand)).clamp(demand.lower, demand.upper)
    };
    let sum_at = |proportion: f64| {
        demands
            .iter()
            .map(|demand| share(demand, proportion))
            .sum::<f64>()
    };
    // The sum grows with the proportion, along straight lines between these.
    let mut bends: Vec<f64> = demands
        .iter()
        .flat_map(|demand| [demand.lower / target(demand), demand.upper / target(demand)])
        .collect();
    bends.sort_by(f64::total_cmp);
    let at = bends.partition_point(|bend| sum_at(*bend) < sum);
    let proportion = match (at.checked_sub(1).map(|before| bends[before]), bends.get(at)) {
        (None, first) => first.copied().unwrap_or_default(),
        (Some(last), None) => last,
        (Some(before), Some(after)) => {
            let (less, more) = (sum_at(before), sum_at(*after));
            let part = if more > less {
                (sum - less) / (more - less)
            } else {
                0.0
            };
            before + (after - before) * part
        }
    };
    Some(Division {
        shares: demands.iter().map(|demand| share(demand, proportion)).collect(),
        proportion,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(lower: f64, target: f64, upper: f64) -> LevelDemand {
        LevelDemand { target, lower, upper }
    }

    #[track_caller]
    fn check(sum: f64, demands: &[LevelDemand], expected: &[f64]) {
        let division = divide(sum, demands).unwrap();
        let off = |(share, expected): (&f64, &f64)| (share - expected).abs();
        assert!(
            division
                .shares
                .iter()
                .zip(expected)
                .map(off)
                .all(|off| off < 1e-6),
            "{division:?}"
        );
    }

    #[test]
    fn concurrency_is_divided_by_targets_within_bounds() {
        check(
            10.0,
            &[demand(0.0, 1.0, 20.0), demand(0.0, 1.0, 20.0)],
            &[5.0, 5.0],
        );
        check(
            10.0,
            &[demand(0.0, 1.0, 20.0), demand(0.0, 4.0, 20.0)],
            &[2.0, 8.0],
        );
        check(
            10.0,
            &[demand(0.0, 1.0, 20.0), demand(0.0, 4.0, 5.0)],
            &[5.0, 5.0],
        );
        check(
            10.0,
            &[demand(4.0, 4.0, 20.0), demand(0.0, 16.0, 20.0)],
            &[4.0, 6.0],
        );
        check(10.0, &[demand(4.0, 4.0, 4.0), demand(6.0, 6.0, 9.0)], &[4.0, 6.0]);
        check(10.0, &[demand(0.0, 0.0, 9.0), demand(0.0, 0.0, 1.0)], &[9.0, 1.0]);
        check(0.0, &[demand(0.0, 5.0, 9.0)], &[0.0]);
        check(0.0, &[], &[]);
    }

    #[test]
    fn concurrency_that_bounds_forbid_is_not_divided() {
        assert_eq!(divide(-1.0, &[]), None);
        assert_eq!(divide(1.0, &[]), None);
        assert_eq!(
            divide(10.0, &[demand(6.0, 6.0, 9.0), demand(5.0, 6.0, 9.0)]),
            None
        );
        assert_eq!(
            divide(10.0, &[demand(0.0, 6.0, 4.0), demand(0.0, 6.0, 5.0)]),
            None
        );
        assert_eq!(divide(10.0, &[demand(5.0, 4.0, 20.0)]), None);
        assert_eq!(divide(10.0, &[demand(5.0, 6.0, 4.0)]), None);
        assert_eq!(divide(10.0, &[demand(-1.0, 6.0, 40.0)]), None);
    }

    /// Compares divisions of random problems with the definition, as upstream's `conc_alloc_test.go` does.
    #[test]
    fn concurrency_division_is_the_defined_one() {
        let mut state = 7u64;
        let mut draw = |bound: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % (bound + 1)
        };
        for _ in 0..20_000 {
            let count = draw(6) + 1;
            let mut random = |bound| f64::from(draw(bound));
            let demands: Vec<LevelDemand> = (0..count)
                .map(|_| {
                    let lower = random(20);
                    demand(lower, lower + random(30), lower + random(40))
                })
                .collect();
            let lower: f64 = demands.iter().map(|demand| demand.lower).sum();
            let upper: f64 = demands.iter().map(|demand| demand.upper).sum();
            let sum = lower + (upper - lower) * random(100) / 100.0;
            let Division { shares, proportion } = divide(sum, &demands).unwrap();
            assert!(
                (shares.iter().sum::<f64>() - sum).abs() < 1e-6,
                "{demands:?} {sum} {shares:?}"
            );
            for (demand, share) in demands.iter().zip(shares) {
                let wanted = proportion * demand.target.max(MIN_TARGET);
                let is_as_wanted = (share - wanted).abs() < 1e-6;
                let is_raised = (share - demand.lower).abs() < 1e-6 && wanted < demand.lower + 1e-6;
                let is_lowered = (share - demand.upper).abs() < 1e-6 && wanted > demand.upper - 1e-6;
                assert!(
                    is_as_wanted || is_raised || is_lowered,
                    "{demand:?} {share} {proportion}"
                );
            }
        }
    }
}
