//! Ranges of costs and of sizes.

/// Least and greatest, of a cost or of a size; sums and products end at the greatest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostEstimate {
    pub min: u64,
    pub max: u64,
}

pub(super) type Range = CostEstimate;

impl CostEstimate {
    pub(super) const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };

    pub(super) fn new(min: u64, max: u64) -> Self {
        Self { min, max }
    }

    pub(super) fn fixed(own: u64) -> Self {
        Self { min: own, max: own }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(super) fn scaled(self, factor: f64) -> Self {
        Self {
            min: scaled(self.min, factor),
            max: scaled(self.max, factor),
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// A number times a factor, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a cast saturates, as upstream's check does"
)]
pub(super) fn scaled(own: u64, factor: f64) -> u64 {
    (own as f64 * factor).ceil() as u64
}
