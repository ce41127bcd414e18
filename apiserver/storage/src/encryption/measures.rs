//! Transformations and reloads as they are counted.

use super::KmsCounts;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bounds in seconds of the groups that durations are counted in: 5 µs, doubled 24 times.
pub const TRANSFORMATION_BOUNDS: usize = 25;
const FIRST_BOUND_SECONDS: f64 = 5e-6;

/// One kind of transformation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    pub resource: String,
    /// `from_storage` or `to_storage`.
    pub transformation_type: &'static str,
    pub transformer_prefix: String,
    pub status: &'static str,
}

/// Durations of transformations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Durations {
    /// No longer than each bound, cumulative.
    pub within: [u64; TRANSFORMATION_BOUNDS],
    pub count: u64,
    pub seconds: f64,
}

/// A reading of the counters.
#[derive(Debug, Clone, Default)]
pub struct EncryptionMeasures {
    pub operations: BTreeMap<Operation, u64>,
    /// By type and prefix.
    pub durations: BTreeMap<(&'static str, String), Durations>,
    /// Reloads by outcome, `success` or `failure`, with the time of the last in seconds since 1970.
    pub reloads: BTreeMap<&'static str, (u64, i64)>,
    /// SHA-256 of the file that is in use.
    pub config_hash: String,
    /// Plugins.
    pub kms: KmsCounts,
}

#[derive(Debug, Default)]
pub(super) struct Measures(Mutex<EncryptionMeasures>);

const FROM: &str = "from_storage";
const TO: &str = "to_storage";
const OK: &str = "OK";
/// Upstream's status of an error that no other process sent.
const FAILED: &str = "unknown-non-grpc";

impl EncryptionMeasures {
    /// The bound of a group, in seconds.
    pub fn bound(at: usize) -> f64 {
        FIRST_BOUND_SECONDS * 2_f64.powi(i32::try_from(at).unwrap_or(i32::MAX))
    }

    fn count(&mut self, operation: Operation, took: Option<Duration>) {
        if let Some(took) = took {
            let key = (
                operation.transformation_type,
                operation.transformer_prefix.clone(),
            );
            let durations = self.durations.entry(key).or_default();
            let seconds = took.as_secs_f64();
            for (at, within) in durations.within.iter_mut().enumerate() {
                *within += u64::from(seconds <= Self::bound(at));
            }
            durations.count += 1;
            durations.seconds += seconds;
        }
        *self.operations.entry(operation).or_default() += 1;
    }
}

impl Measures {
    /// `took` is absent where it failed.
    pub(super) fn sealed(&self, resource: &str, prefix: String, took: Option<Duration>) {
        let operation = Operation {
            resource: resource.to_owned(),
            transformation_type: TO,
            transformer_prefix: prefix,
            status: if took.is_some() { OK } else { FAILED },
        };
        self.0.lock().count(operation, took);
    }

    /// `took` is absent where it failed.
    pub(super) fn opened(&self, resource: &str, prefix: String, took: Option<Duration>) {
        let operation = Operation {
            resource: resource.to_owned(),
            transformation_type: FROM,
            transformer_prefix: prefix,
            status: if took.is_some() { OK } else { FAILED },
        };
        self.0.lock().count(operation, took);
    }

    pub(super) fn reloaded(&self, done: bool, now: i64) {
        let status = if done { "success" } else { "failure" };
        let mut own = self.0.lock();
        let reloads = own.reloads.entry(status).or_default();
        *reloads = (reloads.0 + 1, now);
    }

    pub(super) fn read(&self, config_hash: String, kms: KmsCounts) -> EncryptionMeasures {
        EncryptionMeasures {
            config_hash,
            kms,
            ..self.0.lock().clone()
        }
    }
}
