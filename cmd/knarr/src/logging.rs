//! Log lines go to standard error; what ends a command is one line there.

use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;

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
        .with_writer(move || OneLine {
            out: io::stderr(),
            is_colored,
        })
        .with_ansi(is_colored)
        .with_target(false)
        .init();
}

/// Writer of events, each of which is one line whatever its fields hold: names and errors carry text of tenants, nodes and
/// pods, and a line break in it would be a line of their own in this log.
struct OneLine<W> {
    out: W,
    /// Colours are escape sequences; those in fields are escaped by `tracing_subscriber`.
    is_colored: bool,
}

impl<W: Write> Write for OneLine<W> {
    /// Takes an event as a whole, which is how `tracing_subscriber` writes it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        self.out
            .write_all((escaped(line, self.is_colored) + "\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
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

/// Returns an error of the command line's parser as one line, without usage and hints.
pub(crate) fn one_line(mistake: &clap::Error) -> anyhow::Error {
    let message = mistake.to_string();
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let kept =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let text = kept.collect::<Vec<_>>().join(" ");
    anyhow::anyhow!("{}; see --help", text.trim_start_matches("error: "))
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

    #[test]
    fn log_event_is_one_line_whatever_its_fields_hold() {
        let written = Shared::default();
        let out = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || OneLine {
                out: out.clone(),
                is_colored: false,
            })
            .with_ansi(false)
            .finish();
        let forged = "a\r\n2026-11-23T00:00:00Z ERROR forged\u{1b}[2K\u{85}\u{2028}\u{202e} é";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(error = forged, key = %forged, "{forged}");
            tracing::warn!("second");
        });
        let bytes = written.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = String::from_utf8_lossy(&bytes);
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
