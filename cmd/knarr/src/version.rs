//! `knarr version`, and `knarr --version`.

use anyhow::Context;
use apiserver_endpoints::{VersionInfo, yaml};
use clap::{Args, ValueEnum};
use machinery_meta::version::KUBERNETES;
use serde_json::json;
use std::io::Write;
use std::sync::LazyLock;

/// The flags, as `kubectl version` has them.
#[derive(Debug, Args)]
pub(crate) struct VersionArguments {
    /// Output format
    #[arg(short, long)]
    output: Option<Form>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    Json,
    Yaml,
}

pub(crate) fn run(arguments: &VersionArguments) -> anyhow::Result<()> {
    let text = match arguments.output {
        None => format!("knarr {}", line()),
        Some(form) => document(form)?,
    };
    writeln!(std::io::stdout(), "{}", text.trim_end()).context("writing to standard output")
}

/// The version in words.
pub(crate) fn line() -> &'static str {
    static LINE: LazyLock<String> =
        LazyLock::new(|| format!("v{} (Kubernetes {KUBERNETES})", env!("CARGO_PKG_VERSION")));
    &LINE
}

/// The version in the form of `kubectl version --client`.
fn document(form: Form) -> anyhow::Result<String> {
    let version = json!({"clientVersion": VersionInfo::default()});
    let json = serde_json::to_string_pretty(&version)?;
    Ok(match form {
        Form::Json => json,
        Form::Yaml => String::from_utf8(yaml::from_json(json.as_bytes()))?,
    })
}
