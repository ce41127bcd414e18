//! Log lines go to standard error; what ends a command is one line there.

use std::io::{IsTerminal, Write};
use tracing_subscriber::EnvFilter;

/// Upstream's `-v`: 0 to 1 is info, 2 to 5 debug, more is trace of our own crates. `RUST_LOG` wins.
pub(crate) fn init(verbosity: u8) {
    let level = match verbosity {
        0 | 1 => "info",
        2..=5 => "debug",
        _ => "trace",
    };
    // Whoever uses the client says what failed; the client itself would only say that something did.
    let quiet = "hyper=warn,h2=warn,rustls=warn,tower=warn,kube_client=off";
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(format!("{level},{quiet}")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

/// The whole chain of causes in one line.
pub(crate) fn complain(error: &anyhow::Error) {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // Transparent errors repeat their source.
        if parts.last() != Some(&text) {
            parts.push(text);
        }
    }
    // Where standard error is gone there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "knarr: {}", parts.join(": "));
}

/// What the command line's parser says in several lines, without its invitation to ask for help.
pub(crate) fn in_a_line(mistake: &clap::Error) -> anyhow::Error {
    let told = mistake.to_string();
    let lines = told.lines().map(str::trim).filter(|line| !line.is_empty());
    let said =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let text = said.collect::<Vec<_>>().join(" ");
    anyhow::anyhow!("{}; --help tells more", text.trim_start_matches("error: "))
}
