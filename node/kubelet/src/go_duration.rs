//! Durations as upstream prints them.

/// A duration of whole seconds as Go prints it: `10s`, `2m40s`, `5m0s`, `4h0m0s`.
pub(crate) fn go_duration(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, rest) => format!("{rest}s"),
        (0, minutes, rest) => format!("{minutes}m{rest}s"),
        (hours, minutes, rest) => format!("{hours}h{minutes}m{rest}s"),
    }
}
