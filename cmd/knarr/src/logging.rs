//! Log lines go to standard error; what ends a command is one line there.

use crate::line_limits::LineLimits;
use crate::near::nearest;
use clap::error::{ContextKind, ContextValue};
use std::io::{self, IsTerminal, Write};
use tracing::Metadata;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Bytes of one line: fields carry texts of others, an answer of a webhook for instance.
const MAX_LINE_BYTES: usize = 8 << 10;
/// Ends a colour.
const RESET: &str = "\u{1b}[0m";

/// Upstream's `-v`: 0 to 1 is info, 2 to 5 debug, more is trace of our own crates. `RUST_LOG` wins.
pub(crate) fn init(verbosity: u8) {
    let level = match verbosity {
        0 | 1 => "info",
        2..=5 => "debug",
        _ => "trace",
    };
    // The caller of the client logs what failed; the client itself would only log that something did.
    let quiet = "hyper=warn,h2=warn,rustls=warn,tower=warn,kube_client=off";
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(format!("{level},{quiet}")));
    let is_colored = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines {
            out: io::stderr,
            is_colored,
            limits: LineLimits::new(),
        })
        .with_ansi(is_colored)
        .with_target(false)
        // Reports of lines that could not be written go to standard error, where failing is a panic: a log on a full disk would
        // end the process that could make room.
        .log_internal_errors(false)
        .init();
}

/// Writers of events, of which a place in the code has a bounded number.
struct Lines<F> {
    out: F,
    is_colored: bool,
    limits: LineLimits,
}

impl<'a, F: Fn() -> W, W: Write> MakeWriter<'a> for Lines<F> {
    type Writer = OneLine<W>;

    fn make_writer(&'a self) -> OneLine<W> {
        OneLine {
            out: Some((self.out)()),
            is_colored: self.is_colored,
        }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> OneLine<W> {
        let Some(left_out) = self.limits.should_write(event) else {
            return OneLine {
                out: None,
                is_colored: self.is_colored,
            };
        };
        let mut writer = self.make_writer();
        if left_out > 0 {
            let (mut line, place) = (String::new(), event.target());
            // Neither a text nor a log that cannot be written is worth the next line.
            let _ = SystemTime.format_time(&mut Writer::new(&mut line));
            line += &format!(
                " {:>5} {left_out} lines of {place} were left out before the next\n",
                event.level()
            );
            let _ = writer.write_all(line.as_bytes());
        }
        writer
    }
}

/// Writer of events, each of which is one line whatever its fields hold: names and errors carry text of tenants, nodes and
/// pods, and a line break in it would be a line of their own in this log.
struct OneLine<W> {
    /// `None` for one that is left out.
    out: Option<W>,
    /// Colours are escape sequences; those in fields are escaped by `tracing_subscriber`.
    is_colored: bool,
}

impl<W: Write> Write for OneLine<W> {
    /// Takes an event as a whole, which is how `tracing_subscriber` writes it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if let Some(out) = &mut self.out {
            out.write_all(line(event, self.is_colored).as_bytes())?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// An event as one line, of which no more than [`MAX_LINE_BYTES`] are kept.
fn line(event: &[u8], is_colored: bool) -> String {
    let event = event.strip_suffix(b"\n").unwrap_or(event);
    let kept = &event[..event.len().min(MAX_LINE_BYTES)];
    let mut line = escaped(&String::from_utf8_lossy(kept), is_colored);
    if line.len() > MAX_LINE_BYTES || kept.len() < event.len() {
        line.truncate(line.floor_char_boundary(MAX_LINE_BYTES));
        line += &format!(" … cut, {} bytes in all", event.len());
        if is_colored {
            line += RESET;
        }
    }
    line.push('\n');
    line
}

/// The text with its control characters, and what else ends a line or turns its direction, as Rust writes them.
fn escaped(line: &str, is_colored: bool) -> String {
    let mut out = String::with_capacity(line.len() + 1);
    for character in line.chars() {
        match character {
            '\u{1b}' if is_colored => out.push(character),
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(character.escape_default());
            }
            _ if character.is_control() => out.extend(character.escape_default()),
            _ => out.push(character),
        }
    }
    out
}

/// Prints an error with its chain of causes as one line on standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // Transparent errors repeat their source.
        if parts.last() != Some(&text) {
            parts.push(text);
        }
    }
    // A closed standard error leaves no way to report it.
    let _ = writeln!(std::io::stderr(), "knarr: {}", parts.join(": "));
}

/// Returns an error of the command line's parser as one line, without usage, and without a name that hardly resembles the given one.
pub(crate) fn one_line(mistake: &clap::Error) -> anyhow::Error {
    let message = mistake.to_string();
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let kept =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let is_far = !names_a_near_flag(mistake);
    let kept = kept.filter(|line| !(is_far && line.starts_with("tip: a similar argument")));
    let text = kept.collect::<Vec<_>>().join(" ");
    anyhow::anyhow!("{}; see --help", text.trim_start_matches("error: "))
}

fn names_a_near_flag(mistake: &clap::Error) -> bool {
    match (
        mistake.get(ContextKind::InvalidArg),
        mistake.get(ContextKind::SuggestedArg),
    ) {
        (Some(ContextValue::String(given)), Some(ContextValue::String(other))) => {
            nearest(given, std::iter::once(other.as_str())).is_some()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, PoisonError};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log of this.
    fn logged(events: impl FnOnce()) -> String {
        let written = Shared::default();
        let out = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(Lines {
                out: move || out.clone(),
                is_colored: false,
                limits: LineLimits::new(),
            })
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, events);
        let bytes = written.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn flag_that_resembles_none_gets_no_tip() {
        let command =
            || clap::Command::new("knarr").arg(clap::Arg::new("e").long("enforce-node-allocatable"));
        let said =
            |flag: &str| one_line(&command().try_get_matches_from(["knarr", flag]).unwrap_err()).to_string();
        assert!(said("--enforce-node-alocatable").contains("--enforce-node-allocatable"));
        assert_eq!(said("--foo"), "unexpected argument '--foo' found; see --help");
    }

    #[test]
    fn log_lines_of_one_place_are_bounded() {
        let text = logged(|| {
            for number in 0..1_000 {
                tracing::info!(number, "often");
                tracing::debug!(number, "wanted");
            }
            tracing::info!("another place");
        });
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!(count("wanted"), 1_000);
        assert!(
            count("another place") == 1 && (100..1_000).contains(&count("often")),
            "{text}"
        );
    }

    #[test]
    fn log_lines_have_so_many_bytes() {
        let text = logged(|| {
            tracing::warn!(why = "é".repeat(1 << 20), "long");
            tracing::warn!(why = "\u{1}".repeat(MAX_LINE_BYTES - 100), "escaped");
            tracing::warn!(why = "y".repeat(MAX_LINE_BYTES / 2), "short");
        });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        for cut in &lines[..2] {
            assert!(
                (MAX_LINE_BYTES..MAX_LINE_BYTES + 100).contains(&cut.len()),
                "{}",
                cut.len()
            );
            assert!(cut.ends_with(" bytes in all"), "{cut}");
        }
        assert!(lines[2].ends_with("yy\""), "{}", lines[2]);
    }

    #[test]
    fn log_event_is_one_line_whatever_its_fields_hold() {
        let forged = "a\r\n2026-11-23T00:00:00Z ERROR forged\u{1b}[2K\u{85}\u{2028}\u{202e} é";
        let text = logged(|| {
            tracing::warn!(error = forged, key = %forged, "{forged}");
            tracing::warn!("second");
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.matches('\n').count() == 2 && text.contains('é'), "{text}");
        assert!(
            !text
                .chars()
                .any(|own| own != '\n' && (own.is_control() || own == '\u{202e}')),
            "{text:?}"
        );
    }
}
