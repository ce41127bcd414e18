//! One line of a log, in the formats that runtimes write (upstream's `cri-client/pkg/logs`): that of CRI, and Docker's JSON.
//!
//! ```text
//! 2026-11-21T12:00:00.123456789Z stdout F hello
//! 2026-11-21T12:00:00.123456789Z stderr P the first half of a long line
//! {"log":"hello\n","stream":"stdout","time":"2026-11-21T12:00:00.123456789Z"}
//! ```

use std::borrow::Cow;

use super::time::LogTime;

/// A parsed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    /// Time of writing.
    pub(crate) time: LogTime<'a>,
    /// `stdout` or `stderr`; in Docker's JSON whatever its writer says.
    pub(crate) stream: Cow<'a, str>,
    /// The text as it was written: with its line end, unless it goes on in the next line or breaks off.
    pub(crate) text: Cow<'a, [u8]>,
}

/// Format of the lines of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// `time stream tag text`.
    Cri,
    /// An object with `log`, `stream` and `time`.
    DockerJson,
}

#[derive(serde::Deserialize)]
struct JsonLine<'a> {
    #[serde(borrow, default)]
    log: Cow<'a, str>,
    #[serde(borrow, default)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
}

impl LogFormat {
    /// The format that this line has, if it has a known one.
    pub(crate) fn of(line: &[u8]) -> Option<Self> {
        let fits = |format: &Self| format.parse(line).is_some();
        [Self::Cri, Self::DockerJson].into_iter().find(fits)
    }

    /// Parses a line, which includes its line end where it has one; `None` if it has another format.
    pub(crate) fn parse(self, line: &[u8]) -> Option<LogLine<'_>> {
        match self {
            Self::Cri => parse_cri(line),
            Self::DockerJson => parse_json(line),
        }
    }
}

fn parse_cri(line: &[u8]) -> Option<LogLine<'_>> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(fields.next()?).ok();
    let (time, stream, tags) = (word()?, word()?, word()?);
    let text = fields.next()?;
    if !matches!(stream, "stdout" | "stderr") {
        return None;
    }
    let text = match tags.split(':').next() {
        Some("P") => text.strip_suffix(b"\n").unwrap_or(text),
        _ => text,
    };
    Some(LogLine {
        time: LogTime::parse(time.into())?,
        stream: stream.into(),
        text: text.into(),
    })
}

fn parse_json(line: &[u8]) -> Option<LogLine<'_>> {
    let line: JsonLine<'_> = serde_json::from_slice(line).ok()?;
    let text = match line.log {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    };
    Some(LogLine {
        time: LogTime::parse(line.time)?,
        stream: line.stream,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_fuzz_never_panics() {
        machinery_fuzz::fuzz(
            [
                "2026-11-21T12:00:00.1Z stderr P:x a b ",
                "2026-11-21T12:00:00Z stdout F ",
                r#"{"log":"a\n","stream":"stdout","time":"2026-11-21T12:00:00+01:00"}"#,
            ],
            |input| {
                let format = machinery_fuzz::in_proportion(input, 8, || LogFormat::of(input));
                if let Some(line) = format.and_then(|format| format.parse(input)) {
                    assert!(line.text.len() < input.len());
                    assert!(line.time.fixed().len() <= 35);
                }
            },
        );
    }

    #[track_caller]
    fn check(line: &str, format: LogFormat, expected: (&str, &str, &str)) {
        assert_eq!(LogFormat::of(line.as_bytes()), Some(format), "{line}");
        let parsed = format.parse(line.as_bytes()).unwrap();
        let text = std::str::from_utf8(&parsed.text).unwrap();
        assert_eq!((parsed.time.fixed().as_str(), &*parsed.stream, text), expected);
    }

    #[test]
    fn log_lines_are_parsed_in_either_format() {
        let at = "2026-11-21T12:00:00.100000000Z";
        let cri = |line: &str, stream: &str, text: &str| check(line, LogFormat::Cri, (at, stream, text));
        cri("2026-11-21T12:00:00.1Z stderr F a b \n", "stderr", "a b \n");
        cri("2026-11-21T12:00:00.1Z stderr P a b \n", "stderr", "a b ");
        cri("2026-11-21T12:00:00.1Z stdout P:x a\n", "stdout", "a");
        cri("2026-11-21T12:00:00.1Z stdout X:P a\n", "stdout", "a\n");
        cri("2026-11-21T12:00:00.1Z stdout F \n", "stdout", "\n");
        cri("2026-11-21T12:00:00.1Z stdout F brok", "stdout", "brok");
        let json = r#"{"log":"a\tb\n","stream":"stdout","time":"2026-11-21T12:00:00.1Z","more":[1]}"#;
        check(json, LogFormat::DockerJson, (at, "stdout", "a\tb\n"));
    }

    #[test]
    fn lines_of_unknown_formats_are_none() {
        for line in [
            "",
            "\n",
            "garbage",
            "2026-11-21T12:00:00.1Z stdout F",
            "2026-11-21T12:00:00.1Z stdin F a\n",
            "2026-11-21 12:00:00.1Z stdout F a\n",
            "{}",
            "[]",
        ] {
            assert_eq!(LogFormat::of(line.as_bytes()), None, "{line:?}");
        }
    }
}
