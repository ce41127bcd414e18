//! Selection of the lines of a log: upstream's `logWriter` and the loop around it (`cri-client/pkg/logs/logs.go`).

use jiff::Timestamp;

use super::line::{LogFormat, LogLine};

/// A line longer than this is cut there; the runtime splits at 16 KiB.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Shown of a line whose format is unknown.
const SHOWN_BYTES_MAX: usize = 16 << 10;

/// Requested part of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// Go on as it grows.
    pub(crate) follow: bool,
    /// Only this many lines of the end, and, followed, what comes after them.
    pub(crate) tail: Option<u64>,
    /// Only what was written at or after this time.
    pub(crate) since: Option<Timestamp>,
    /// Each line with its time before it.
    pub(crate) timestamps: bool,
    /// No more than this many bytes.
    pub(crate) limit_bytes: Option<u64>,
    /// Only `stdout` or only `stderr`.
    pub(crate) stream: Option<&'static str>,
}

/// Reason why no more of a log is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// All that was wanted is sent.
    Enough,
    /// It cannot be read.
    Failed(String),
}

/// Picks the wanted part out of a log's lines.
#[derive(Debug)]
pub(super) struct LogWriter {
    pub(super) options: LogOptions,
    /// Set once nothing more is to be sent.
    pub(super) end: Option<End>,
    /// Format of the first line.
    format: Option<LogFormat>,
    bytes_left: Option<u64>,
    lines_left: Option<u64>,
    /// The line before was whole, whether it was wanted or not.
    at_line_start: bool,
}

impl LogWriter {
    pub(super) fn new(options: LogOptions) -> Self {
        // Lines that come while it is read are none of the end that was requested.
        let lines_left = options.tail.filter(|_| !options.follow);
        Self {
            end: (lines_left == Some(0)).then_some(End::Enough),
            format: None,
            bytes_left: options.limit_bytes,
            lines_left,
            at_line_start: true,
            options,
        }
    }

    /// The wanted text of the whole lines in `pending`, which are taken out of it.
    pub(super) fn take_lines(&mut self, pending: &mut Vec<u8>) -> Vec<u8> {
        let end = match pending.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if pending.len() > LINE_BYTES_MAX => {
                pending.push(b'\n');
                pending.len()
            }
            None => 0,
        };
        self.take(pending, end)
    }

    /// The wanted text of a last line without its end. One that breaks off before its text is none.
    pub(super) fn take_rest(&mut self, pending: &mut Vec<u8>) -> Vec<u8> {
        self.take(pending, pending.len())
    }

    fn take(&mut self, pending: &mut Vec<u8>, end: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for raw in pending[..end].split_inclusive(|byte| *byte == b'\n') {
            if self.end.is_some() {
                break;
            }
            self.write(&mut out, raw);
        }
        pending.drain(..end);
        out
    }

    fn write(&mut self, out: &mut Vec<u8>, raw: &[u8]) {
        let Some(format) = self.format.or_else(|| LogFormat::of(raw)) else {
            let shown = quoted(&raw[..raw.len().min(SHOWN_BYTES_MAX)]);
            let words = format!("failed to get parse function: unsupported log format: {shown}");
            self.end = Some(End::Failed(words));
            return;
        };
        self.format = Some(format);
        // Between others one of another format is passed over.
        let Some(line) = format.parse(raw) else { return };
        if self.is_late_enough(&line) && !self.send(out, &line) {
            return;
        }
        self.at_line_start = line.text.last().is_none_or(|byte| *byte == b'\n');
        if let Some(left) = &mut self.lines_left {
            *left -= 1;
            if *left == 0 {
                self.end = Some(End::Enough);
            }
        }
    }

    fn is_late_enough(&self, line: &LogLine<'_>) -> bool {
        self.options.since.is_none_or(|since| line.time.at >= since)
    }

    /// False where nothing more is to be sent.
    fn send(&mut self, out: &mut Vec<u8>, line: &LogLine<'_>) -> bool {
        if !matches!(&*line.stream, "stdout" | "stderr") {
            let stream = quoted(line.stream.as_bytes());
            self.end = Some(End::Failed(format!("unexpected stream type {stream}")));
            return false;
        }
        if self.options.stream.is_some_and(|wanted| *wanted != line.stream) {
            return true;
        }
        let began = out.len();
        if self.options.timestamps && self.at_line_start {
            out.extend_from_slice(line.time.fixed().as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(&line.text);
        let Some(left) = &mut self.bytes_left else {
            return true;
        };
        out.truncate(began.saturating_add(usize::try_from(*left).unwrap_or(usize::MAX)));
        *left -= (out.len() - began) as u64;
        if *left == 0 {
            self.end = Some(End::Enough);
        }
        *left > 0
    }
}

/// Bytes as Go's `%q` prints them, but for characters beyond ASCII, which stay.
fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend(['\\', character]),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                own if own.is_control() && own.is_ascii() => {
                    out.push_str(&format!("\\x{:02x}", u32::from(own)))
                }
                own if own.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(own))),
                own => out.push(own),
            }
        }
        let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        out.extend(invalid);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole of a log, and how reading it ended.
    fn written(log: &str, options: LogOptions) -> (String, Option<End>) {
        let mut writer = LogWriter::new(options);
        let mut pending = log.as_bytes().to_vec();
        let mut out = writer.take_lines(&mut pending);
        out.extend(writer.take_rest(&mut pending));
        (String::from_utf8(out).unwrap(), writer.end)
    }

    fn stamped() -> LogOptions {
        LogOptions {
            timestamps: true,
            ..LogOptions::default()
        }
    }

    #[test]
    fn time_comes_before_a_line_and_not_before_each_fragment_of_it() {
        let log = "2026-11-21T12:00:00.1Z stdout P one-\n\
                   2026-11-21T12:00:00.2Z stdout P two-\n\
                   2026-11-21T12:00:00.3Z stdout F three\n\
                   2026-11-21T12:00:00.4Z stdout F \n\
                   2026-11-21T12:00:00.5Z stdout P \n\
                   2026-11-21T12:00:00.6Z stdout F four\n";
        let expected = "2026-11-21T12:00:00.100000000Z one-two-three\n\
                        2026-11-21T12:00:00.400000000Z \n\
                        2026-11-21T12:00:00.500000000Z 2026-11-21T12:00:00.600000000Z four\n";
        assert_eq!(written(log, stamped()).0, expected);
        // What is not shown breaks a line off all the same, as upstream's.
        let mixed = "2026-11-21T12:00:00Z stderr P other-\n2026-11-21T12:00:00Z stdout F one\n\
                     2026-11-21T12:00:00Z stdout F two\n";
        let options = LogOptions {
            stream: Some("stdout"),
            ..stamped()
        };
        let expected = "one\n2026-11-21T12:00:00.000000000Z two\n";
        assert_eq!(written(mixed, options).0, expected);
    }

    #[test]
    fn no_more_lines_and_bytes_are_sent_than_were_asked_for() {
        let log = "2026-11-21T12:00:00Z stdout F one\n2026-11-21T12:00:00Z stderr F two\n\
                   2026-11-21T12:00:00Z stdout F three\n";
        let of = |follow, tail, limit_bytes, stream| LogOptions {
            follow,
            tail,
            limit_bytes,
            stream,
            ..LogOptions::default()
        };
        let enough = Some(End::Enough);
        for (options, expected) in [
            (of(false, Some(2), None, None), ("one\ntwo\n", enough.clone())),
            (of(false, Some(0), None, None), ("", enough.clone())),
            (of(false, Some(4), None, None), ("one\ntwo\nthree\n", None)),
            (of(true, Some(1), None, None), ("one\ntwo\nthree\n", None)),
            (of(false, None, Some(6), None), ("one\ntw", enough.clone())),
            (
                of(false, None, Some(14), None),
                ("one\ntwo\nthree\n", enough.clone()),
            ),
            (of(false, None, Some(15), None), ("one\ntwo\nthree\n", None)),
            (of(false, None, Some(6), Some("stdout")), ("one\nth", enough)),
            (of(false, None, None, Some("stderr")), ("two\n", None)),
        ] {
            let (text, end) = written(log, options.clone());
            assert_eq!((text.as_str(), end), expected, "{options:?}");
        }
        let stamped = LogOptions {
            limit_bytes: Some(4),
            ..stamped()
        };
        assert_eq!(written(log, stamped).0, "2026", "its time counts");
    }

    #[test]
    fn lines_before_a_time_count_as_lines_of_the_end() {
        let log = "2026-11-21T12:00:00.5Z stdout F one\n2026-11-21T12:00:00.6Z stdout F two\n";
        let since = |tail| LogOptions {
            since: "2026-11-21T12:00:00.55Z".parse().ok(),
            tail,
            ..LogOptions::default()
        };
        assert_eq!(written(log, since(None)), ("two\n".into(), None));
        assert_eq!(written(log, since(Some(1))), (String::new(), Some(End::Enough)));
    }

    #[test]
    fn log_of_an_unknown_format_is_told() {
        let (text, end) = written("a \"b\"\u{1}\nc\n", LogOptions::default());
        let words = r#"failed to get parse function: unsupported log format: "a \"b\"\x01\n""#;
        assert_eq!((text.as_str(), end), ("", Some(End::Failed(words.into()))));
        let known = "2026-11-21T12:00:00Z stdout F one\ngarbage\n2026-11-21T12:00:00Z stdout F two\n";
        assert_eq!(written(known, LogOptions::default()), ("one\ntwo\n".into(), None));
        let json = "{\"log\":\"one\\n\",\"stream\":\"stdout\",\"time\":\"2026-11-21T12:00:00Z\"}\n\
                    {\"log\":\"two\\n\",\"stream\":\"odd\",\"time\":\"2026-11-21T12:00:00Z\"}\n";
        let words = r#"unexpected stream type "odd""#;
        let expected = ("one\n".into(), Some(End::Failed(words.into())));
        assert_eq!(written(json, LogOptions::default()), expected);
        assert_eq!(quoted(b"\xff\\\t"), r#""\xff\\\t""#);
    }

    #[test]
    fn line_without_an_end_is_cut_and_what_follows_begins_anew() {
        let mut pending = b"2026-11-21T12:00:00Z stdout F ".to_vec();
        pending.resize(LINE_BYTES_MAX + 1, b'x');
        let mut writer = LogWriter::new(LogOptions::default());
        let text = writer.take_lines(&mut pending);
        assert!(text.ends_with(b"x\n") && pending.is_empty());
        pending.extend_from_slice(b"xx\n2026-11-21T12:00:00Z stdout F next\n");
        assert_eq!(writer.take_lines(&mut pending), b"next\n");
    }
}
