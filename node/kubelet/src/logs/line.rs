//! One line of a log as CRI has it: `time stream tag text`.
//!
//! ```text
//! 2026-11-21T12:00:00.123456789Z stdout F hello
//! 2026-11-21T12:00:00.123456789Z stderr P the first half of a long line
//! ```

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// When it was written, in RFC 3339 with nanoseconds.
    pub time: &'a str,
    /// `stdout` or `stderr`.
    pub stream: &'a str,
    /// Whether the text goes on in the next line.
    pub partial: bool,
    /// The text, without line end.
    pub text: &'a [u8],
}

impl LogLine<'_> {
    /// The text as it was written: with its line end, unless it goes on.
    pub fn text_with_end(&self) -> String {
        let text = String::from_utf8_lossy(self.text);
        if self.partial {
            text.into_owned()
        } else {
            format!("{text}\n")
        }
    }
}

/// Parses a line without its line end; `None` if it is not one of ours.
pub fn parse(line: &[u8]) -> Option<LogLine<'_>> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(fields.next()?).ok();
    let (time, stream, tags) = (word()?, word()?, word()?);
    let text = fields.next().unwrap_or_default();
    if !matches!(stream, "stdout" | "stderr") || !time.contains('T') {
        return None;
    }
    Some(LogLine {
        time,
        stream,
        partial: tags.split(':').next() == Some("P"),
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
                "2026-11-21T12:00:00Z stdout F",
            ],
            |input| {
                if let Some(line) = machinery_fuzz::in_proportion(input, 4, || parse(input)) {
                    assert!(line.text.len() < input.len());
                }
            },
        );
    }

    #[test]
    fn log_lines_are_parsed() {
        let line = parse(b"2026-11-21T12:00:00.1Z stderr P a b ").unwrap();
        assert_eq!(
            (line.stream, line.partial, line.text),
            ("stderr", true, b"a b ".as_slice())
        );
        assert_eq!(
            parse(b"2026-11-21T12:00:00.1Z stdout F").unwrap().text_with_end(),
            "\n"
        );
        assert_eq!(parse(b"garbage"), None);
    }
}
