//! Lifetimes of client certificates, under upstream's name.

use prometheus::{Histogram, HistogramOpts, Registry};

/// Upstream's buckets in seconds, from half an hour to a year.
const BUCKETS: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// A measure of the seconds that the certificate of each request still counts.
pub(crate) fn client_certificate_lifetimes(
    registry: &Registry,
) -> Result<impl Fn(f64) + Send + Sync + use<>, prometheus::Error> {
    let lifetimes = Histogram::with_opts(
        HistogramOpts::new(
            "apiserver_client_certificate_expiration_seconds",
            "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
        )
        .buckets(BUCKETS.to_vec()),
    )?;
    registry.register(Box::new(lifetimes.clone()))?;
    Ok(move |seconds| lifetimes.observe(seconds))
}
