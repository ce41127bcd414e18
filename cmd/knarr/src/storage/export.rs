//! `knarr storage export`: objects as YAML or JSON, as they are stored.

use super::source;
use anyhow::{Context, bail};
use apiserver_storage::{Entry, OfflineState};
use clap::{Args, ValueEnum};
use machinery_runtime::Runtime;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// See the module.
#[derive(Args, Debug)]
pub(crate) struct ExportArguments {
    /// The server's data directory
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Read from the server of this kubeconfig instead of a data directory
    #[arg(long, conflicts_with = "from")]
    kubeconfig: Option<PathBuf>,
    /// Read a backup, or a snapshot of etcd, instead
    #[arg(long)]
    from: Option<PathBuf>,
    /// Accept a snapshot without a hash
    #[arg(long, requires = "from")]
    skip_hash_check: bool,
    /// Prefix of the keys to export (for example /registry/secrets/default/)
    #[arg(long, default_value = "/")]
    prefix: String,
    /// EncryptionConfiguration that decrypts objects; without it the first encrypted object ends the export
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// A document for each object
    Yaml,
    /// One List
    Json,
}

impl ExportArguments {
    fn wants(&self, entry: &Entry) -> bool {
        entry.key.as_str().starts_with(&self.prefix)
    }
}

pub(crate) async fn run(arguments: &ExportArguments, runtime: &Runtime) -> anyhow::Result<()> {
    let config = arguments.encryption_provider_config.as_deref();
    let mut state = match &arguments.from {
        Some(path) => {
            let file = source::File {
                path,
                skip_hash_check: arguments.skip_hash_check,
                encryption: config
                    .map(|path| crate::server::load(path, runtime))
                    .transpose()?,
                prefix: &arguments.prefix,
            };
            source::of_file(&file, runtime)?
        }
        None => source::of_directory(&arguments.data_dir, arguments.kubeconfig.as_deref(), runtime).await?,
    };
    source::open_sealed(&mut state, &arguments.prefix, config, runtime)?;
    let mut wanted = state.entries().filter(|entry| arguments.wants(entry));
    if let Some(sealed) = wanted.find(|entry| entry.record.is_sealed()) {
        bail!(
            "{} is encrypted: --encryption-provider-config names the file with its key",
            sealed.key
        );
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = write_all(&state, arguments, &mut out).and_then(|()| out.flush());
    written.context("writing to standard output")?;
    if !state.entries().any(|entry| arguments.wants(entry)) {
        let nothing = format!("0 objects have a key that begins with {}", arguments.prefix);
        writeln!(std::io::stderr(), "{nothing}").context("writing to standard error")?;
    }
    Ok(())
}

fn write_all(state: &OfflineState, arguments: &ExportArguments, out: &mut dyn Write) -> std::io::Result<()> {
    let wanted = state.entries().filter(|entry| arguments.wants(entry));
    if arguments.output == Output::Json {
        out.write_all(br#"{"kind":"List","apiVersion":"v1","metadata":{},"items":["#)?;
    }
    for (at, entry) in wanted.enumerate() {
        let json = object(entry);
        if arguments.output == Output::Yaml {
            out.write_all(b"---\n")?;
            out.write_all(&apiserver_server::yaml::from_json(&json))?;
        } else {
            out.write_all(if at > 0 { b",\n" } else { b"\n" })?;
            out.write_all(&json)?;
        }
    }
    if arguments.output == Output::Json {
        out.write_all(b"\n]}\n")?;
    }
    Ok(())
}

/// The object with its revision, as a client is given it.
fn object(entry: &Entry) -> Vec<u8> {
    let [type_meta, head, tail] = &entry.record.parts;
    let revision = format!("\"{}\"", entry.revision);
    [b"{", &type_meta[..], head, revision.as_bytes(), tail].concat()
}
