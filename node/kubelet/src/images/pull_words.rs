//! Words about pulls in a container's state and in events, as upstream's image manager has them (`pullImage`, `evalCRIPullErr`). Pure.

use std::time::Duration;

use crate::containers::StartError;

const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// Reasons with which a runtime's message may begin (`k8s.io/cri-api/pkg/errors`), and the sentence about each.
const RUNTIME_REASONS: [(&str, &str); 2] = [
    ("RegistryUnavailable", "the registry is unavailable"),
    ("SignatureValidationFailed", "the signature validation failed"),
];

/// The state of a container whose image could not be pulled, by the runtime's message.
pub(super) fn failure(image: &str, message: &str) -> StartError {
    let mut known = RUNTIME_REASONS.into_iter();
    let known = known.find_map(|(reason, why)| Some((reason, why, message.strip_prefix(reason)?)));
    match known {
        Some((reason, why, rest)) => StartError {
            reason,
            message: format!("image pull failed for {image} because {why}{rest}"),
        },
        None => StartError {
            reason: ERR_IMAGE_PULL,
            message: message.to_owned(),
        },
    }
}

/// The event of a pull that took so long, and so long with its wait for a turn.
pub(super) fn success(image: &str, took: Duration, with_waiting: Duration, bytes: u64) -> String {
    let (took, with_waiting) = (in_milliseconds(took), in_milliseconds(with_waiting));
    format!(
        "Successfully pulled image \"{image}\" in {took} ({with_waiting} including waiting). Image size: {bytes} bytes."
    )
}

/// A duration without what is below a millisecond, as Go prints it.
fn in_milliseconds(duration: Duration) -> String {
    let all = duration.as_millis();
    let (minutes, rest) = (all / 60_000, all % 60_000);
    let seconds = match (rest / 1_000, rest % 1_000) {
        (whole, 0) => format!("{whole}s"),
        (0, part) if minutes == 0 => format!("{part}ms"),
        (whole, part) => format!("{}s", format!("{whole}.{part:03}").trim_end_matches('0')),
    };
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's rows of `TestEvalCRIPullErr` (kubelet/images/image_manager_test.go).
    #[test]
    fn pull_that_failed_has_the_reason_that_the_runtime_gives() {
        for (message, reason, expected) in [
            ("foobar", "ErrImagePull", "foobar"),
            (
                "RegistryUnavailable",
                "RegistryUnavailable",
                "image pull failed for test because the registry is unavailable",
            ),
            (
                "RegistryUnavailable: foo",
                "RegistryUnavailable",
                "image pull failed for test because the registry is unavailable: foo",
            ),
            (
                "SignatureValidationFailed: bar",
                "SignatureValidationFailed",
                "image pull failed for test because the signature validation failed: bar",
            ),
            (
                "pulling: RegistryUnavailable",
                "ErrImagePull",
                "pulling: RegistryUnavailable",
            ),
        ] {
            let found = failure("test", message);
            assert_eq!((found.reason, found.message.as_str()), (reason, expected));
        }
    }

    #[test]
    fn pull_that_succeeded_says_times_as_go_and_the_size() {
        for (micros, expected) in [
            (0, "0s"),
            (999, "0s"),
            (56_700, "56ms"),
            (1_000_000, "1s"),
            (1_250_999, "1.25s"),
            (60_000_000, "1m0s"),
            (60_005_000, "1m0.005s"),
            (3_723_100_000, "1h2m3.1s"),
        ] {
            assert_eq!(in_milliseconds(Duration::from_micros(micros)), expected);
        }
        assert_eq!(
            success("a:1", Duration::from_millis(5), Duration::from_millis(1_500), 42),
            "Successfully pulled image \"a:1\" in 5ms (1.5s including waiting). Image size: 42 bytes."
        );
    }
}
