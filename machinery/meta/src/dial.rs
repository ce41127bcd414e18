//! Errors of failed connections, in the words of Go's `net` package: people and programs know them from upstream.

use std::io::{Error, ErrorKind};

/// Text of the standard library before the resolver's message.
const LOOKUP_FAILED: &str = "failed to lookup address information: ";
const UNKNOWN_NAME: &str = "name or service not known";

/// Returns the text of a failed connection: `dial tcp 10.0.0.1:80: connect: connection refused`.
///
/// A time limit of our own is [`ErrorKind::TimedOut`] without a number of the system's.
pub fn dial_error(host: &str, port: u16, error: &Error) -> String {
    let words = system_error_text(error);
    if let Some(resolver) = words.strip_prefix(LOOKUP_FAILED) {
        let reason = if resolver == UNKNOWN_NAME {
            "no such host"
        } else {
            resolver
        };
        return format!("dial tcp: lookup {host}: {reason}");
    }
    let open = if host.contains(':') { ("[", "]") } else { ("", "") };
    let call = if error.raw_os_error().is_some() {
        "connect: "
    } else {
        ""
    };
    format!("dial tcp {}{host}{}:{port}: {call}{words}", open.0, open.1)
}

/// Returns the text of a system error alone: `connection reset by peer`. It does not depend on the C library.
pub fn system_error_text(error: &Error) -> String {
    let known = match (error.kind(), error.raw_os_error()) {
        (ErrorKind::ConnectionRefused, _) => "connection refused",
        (ErrorKind::ConnectionReset, _) => "connection reset by peer",
        (ErrorKind::BrokenPipe, _) => "broken pipe",
        (ErrorKind::HostUnreachable, _) => "no route to host",
        (ErrorKind::NetworkUnreachable, _) => "network is unreachable",
        (ErrorKind::UnexpectedEof, _) => "EOF",
        (ErrorKind::TimedOut, Some(_)) => "connection timed out",
        (ErrorKind::TimedOut, None) => "i/o timeout",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, error: Error, expected: &str) {
        assert_eq!(dial_error(host, 80, &error), expected);
    }

    #[test]
    fn dial_errors_match_go() {
        let system = Error::from_raw_os_error;
        check(
            "10.0.0.1",
            system(111),
            "dial tcp 10.0.0.1:80: connect: connection refused",
        );
        check("::1", system(113), "dial tcp [::1]:80: connect: no route to host");
        check(
            "10.0.0.1",
            system(110),
            "dial tcp 10.0.0.1:80: connect: connection timed out",
        );
        check(
            "10.0.0.1",
            system(13),
            "dial tcp 10.0.0.1:80: connect: permission denied",
        );
        check(
            "10.0.0.1",
            ErrorKind::TimedOut.into(),
            "dial tcp 10.0.0.1:80: i/o timeout",
        );
        let unknown = "failed to lookup address information: Name or service not known";
        check("web", Error::other(unknown), "dial tcp: lookup web: no such host");
        let later = "failed to lookup address information: Temporary failure in name resolution";
        check(
            "web",
            Error::other(later),
            "dial tcp: lookup web: temporary failure in name resolution",
        );
    }
}
