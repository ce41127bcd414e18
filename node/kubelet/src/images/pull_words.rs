//! Words about pulls in a container's state and in events, as upstream's image manager has them (`pullImage`, `evalCRIPullErr`). Pure.

use std::time::Duration;

use machinery_meta::go_duration;

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
    let [took, with_waiting] = [took, with_waiting].map(go_duration::write_whole_milliseconds);
    format!(
        "Successfully pulled image \"{image}\" in {took} ({with_waiting} including waiting). Image size: {bytes} bytes."
    )
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
        assert_eq!(
            success(
                "a:1",
                Duration::from_micros(5_999),
                Duration::from_millis(1_500),
                42
            ),
            "Successfully pulled image \"a:1\" in 5ms (1.5s including waiting). Image size: 42 bytes."
        );
    }
}
