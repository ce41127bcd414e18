//! Description of a family.

/// Name, help, labels and, for histograms, buckets; all of them upstream's where upstream has the family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Family {
    /// With its unit, such as `job_controller_job_syncs_total`.
    pub name: &'static str,
    /// With upstream's stability in front, such as `[STABLE] The number of job syncs`.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Buckets of a histogram.
    pub buckets: Buckets,
}

/// Upper bounds of a histogram's buckets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Buckets {
    /// Prometheus' own.
    Default,
    /// So many, each a multiple of the one before.
    Exponential {
        /// The first.
        start: f64,
        /// Each divided by the one before it.
        factor: f64,
        /// Number of them.
        count: usize,
    },
    /// These.
    Listed(&'static [f64]),
}

/// A family that a component has requested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Described {
    /// Its description.
    pub family: Family,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
}

impl Family {
    /// A family; a histogram has Prometheus' own buckets.
    pub const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self {
            name,
            help,
            labels,
            buckets: Buckets::Default,
        }
    }

    /// A histogram with so many buckets, each a multiple of the one before.
    #[must_use]
    pub const fn exponential(mut self, start: f64, factor: f64, count: usize) -> Self {
        self.buckets = Buckets::Exponential { start, factor, count };
        self
    }

    /// A histogram with these buckets.
    #[must_use]
    pub const fn listed(mut self, bounds: &'static [f64]) -> Self {
        self.buckets = Buckets::Listed(bounds);
        self
    }
}

impl Buckets {
    /// The upper bounds.
    pub fn bounds(&self) -> Vec<f64> {
        match *self {
            Self::Default => prometheus::DEFAULT_BUCKETS.to_vec(),
            Self::Listed(bounds) => bounds.to_vec(),
            Self::Exponential { start, factor, count } => {
                std::iter::successors(Some(start), |bound| Some(bound * factor))
                    .take(count)
                    .collect()
            }
        }
    }
}
