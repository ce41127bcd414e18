//! Options of a request for a log: the parameters of upstream's `PodLogOptions`, decoded and checked as its kubelet does
//! (`getContainerLogs` in `pkg/kubelet/server/server.go`, `ValidatePodLogOptions`).

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::query::Query;
use crate::logs::time::rfc3339;
use crate::logs::writer::LogOptions;

/// Upstream's answers, which do not name the problem.
const UNDECODED: Refused = (
    StatusCode::BAD_REQUEST,
    r#"{"message": "Unable to decode query."}"#,
);
const INVALID: Refused = (
    StatusCode::UNPROCESSABLE_ENTITY,
    r#"{"message": "Invalid request."}"#,
);

type Refused = (StatusCode, &'static str);

/// A log that is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Of the container's run before this one.
    pub(super) previous: bool,
    pub(super) options: LogOptions,
}

impl Wanted {
    pub(super) fn read(query: &Query, now: Timestamp) -> Result<Self, Refused> {
        let tail = match query.get("tail").filter(|text| !text.is_empty()) {
            Some("all") => None,
            Some(lines) => Some(decimal(lines)?),
            None => number(query, "tailLines")?,
        };
        let limit_bytes = number(query, "limitBytes")?;
        let since_seconds = number(query, "sinceSeconds")?;
        let since_time = query.get("sinceTime").map(time).transpose()?;
        let stream = match query.get("stream") {
            None | Some("All") => None,
            Some("Stdout") => Some("stdout"),
            Some("Stderr") => Some("stderr"),
            Some(_) => return Err(INVALID),
        };
        let makes_sense = tail.is_none_or(|lines| lines >= 0 && stream.is_none())
            && limit_bytes.is_none_or(|bytes| bytes > 0)
            && since_seconds.is_none_or(|seconds| seconds > 0 && since_time.is_none());
        if !makes_sense {
            return Err(INVALID);
        }
        let ago = |seconds| {
            let since = now.checked_sub(SignedDuration::from_secs(seconds));
            since.unwrap_or(Timestamp::MIN)
        };
        let size = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        Ok(Self {
            previous: flag(query, "previous"),
            options: LogOptions {
                follow: flag(query, "follow"),
                tail: size(tail),
                since: since_time.flatten().or(since_seconds.map(ago)),
                timestamps: flag(query, "timestamps"),
                limit_bytes: size(limit_bytes),
                stream,
            },
        })
    }
}

/// Everything but `0` and `false` says yes.
fn flag(query: &Query, name: &str) -> bool {
    query
        .get(name)
        .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

fn number(query: &Query, name: &str) -> Result<Option<i64>, Refused> {
    query.get(name).map(decimal).transpose()
}

fn decimal(text: &str) -> Result<i64, Refused> {
    text.parse().map_err(|_| UNDECODED)
}

/// Old clients wrote `null` where they had none.
fn time(text: &str) -> Result<Option<Timestamp>, Refused> {
    match text {
        "" | "null" => Ok(None),
        text => rfc3339(text).map(Some).ok_or(UNDECODED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Wanted, Refused> {
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        Wanted::read(&Query::parse(query), now)
    }

    #[track_caller]
    fn reads(query: &str, options: LogOptions) {
        let previous = false;
        assert_eq!(read(query), Ok(Wanted { previous, options }), "{query}");
    }

    #[test]
    fn parameters_of_a_log_are_read_as_upstream_reads_them() {
        let all = LogOptions::default;
        let tail = |lines| LogOptions {
            tail: Some(lines),
            ..all()
        };
        let since = |time: &str| LogOptions {
            since: Some(time.parse().unwrap()),
            ..all()
        };
        let stream = |stream| LogOptions {
            stream: Some(stream),
            ..all()
        };
        let limit_bytes = Some(1);
        reads("", all());
        reads("tailLines=0", tail(0));
        reads("tail=3&tailLines=nonsense", tail(3));
        reads("tail=all&tailLines=3", all());
        reads("tailLines=3&stream=All", tail(3));
        reads("limitBytes=1", LogOptions { limit_bytes, ..all() });
        reads("sinceSeconds=1", since("2026-11-21T11:59:59Z"));
        reads(
            "sinceSeconds=9223372036854775807",
            LogOptions {
                since: Some(Timestamp::MIN),
                ..all()
            },
        );
        reads(
            "sinceTime=2026-11-21T11:00:00.5%2B01:00",
            since("2026-11-21T10:00:00.5Z"),
        );
        reads("sinceTime=null", all());
        reads("stream=Stdout", stream("stdout"));
        reads("stream=Stderr", stream("stderr"));
        reads("follow=0&timestamps=False", all());
        let follow = true;
        reads("follow", LogOptions { follow, ..all() });
        assert!(read("previous=yes").unwrap().previous);
    }

    #[test]
    fn parameters_of_a_log_that_cannot_be_decoded_are_a_bad_request() {
        for query in [
            "tailLines=",
            "tailLines=x",
            "tail=x",
            "limitBytes=1.5",
            "sinceSeconds=9223372036854775808",
            "sinceTime=yesterday",
            "sinceTime=2026-11-21",
        ] {
            assert_eq!(read(query), Err(UNDECODED), "{query}");
        }
    }

    #[test]
    fn parameters_of_a_log_that_make_no_sense_are_unprocessable() {
        for query in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceSeconds=1&sinceTime=2026-11-21T11:00:00Z",
            "sinceSeconds=1&sinceTime=",
            "stream=",
            "stream=stdout",
            "stream=Stdout&tailLines=1",
        ] {
            assert_eq!(read(query), Err(INVALID), "{query}");
        }
    }
}
