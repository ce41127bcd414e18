//! `knarr image`: images without a registry. `import` and `ls` speak to the node's container runtime,
//! `build` makes an archive of what knarr brings along.

use crate::server::paths::Paths;
use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};
use node_kubelet::images::base::{BaseImage, import_archive};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The program of our own images, built by `build.rs`.
pub(crate) const BASE_PROGRAM: &[u8] = include_bytes!(env!("KNARR_BASE_PROGRAM"));

/// Flags of `knarr image`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ImageArguments {
    #[command(subcommand)]
    action: Action,
    /// The server's data directory, or the agent's
    #[arg(long, global = true, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// The container runtime's socket [default: of the agent's own containerd]
    #[arg(long, global = true)]
    container_runtime_endpoint: Option<String>,
}

#[derive(Subcommand, Debug, Clone)]
enum Action {
    /// Imports images from archives in OCI layout
    Import {
        /// The archives
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Lists images
    Ls,
    /// Writes the archive of a built-in image
    Build {
        /// Name of the image
        image: Built,
        /// File of the archive
        archive: PathBuf,
    },
}

/// Image that the binary makes.
#[derive(ValueEnum, Debug, Clone, Copy)]
pub(crate) enum Built {
    /// Holds a sandbox's namespaces
    Pause,
    /// Answers HTTP with its host name
    Hello,
}

pub(crate) fn run(arguments: &ImageArguments) -> anyhow::Result<()> {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    match &arguments.action {
        Action::Build { image, archive } => build(*image, archive),
        Action::Import { archives } => executor.block_on(import(arguments, archives)),
        Action::Ls => executor.block_on(list(arguments)),
    }
}

impl Built {
    fn image(self) -> BaseImage {
        match self {
            Self::Pause => BaseImage::Pause,
            Self::Hello => BaseImage::Hello,
        }
    }
}

fn build(image: Built, archive: &Path) -> anyhow::Result<()> {
    write_built(image.image(), archive)?;
    print_line(&format!("{} in {}", image.image().reference(), archive.display()))
}

fn write_built(image: BaseImage, archive: &Path) -> anyhow::Result<()> {
    let architecture = node_sys::machine::Machine::observe().architecture;
    let content = image
        .archive(BASE_PROGRAM, architecture)
        .context("making the archive")?;
    std::fs::write(archive, content).with_context(|| format!("writing {}", archive.display()))
}

/// Imports an image that the binary makes into the agent's own containerd, unless it is there.
pub(crate) async fn import_built(runtime: &Runtime, data_dir: &Path, image: Built) -> anyhow::Result<()> {
    let image = image.image();
    let agent = Paths::new(data_dir).agent();
    let socket = agent.join("containerd/containerd.sock");
    if !socket.try_exists()? {
        // A runtime of the user's own has it from the agent.
        return Ok(());
    }
    let client = CriClient::new(socket);
    let listed = client.list_images(v1::ListImagesRequest { filter: None }).await?;
    let mut names = listed.images.iter().flat_map(|found| &found.repo_tags);
    if names.any(|name| name == image.reference()) {
        return Ok(());
    }
    let archive = agent.join("images/up.tar");
    write_built(image, &archive)?;
    let imported = import_archive(runtime, &client, &archive).await;
    std::fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))?;
    imported.with_context(|| format!("importing {}", image.reference()))?;
    Ok(())
}

fn client(arguments: &ImageArguments) -> anyhow::Result<CriClient> {
    if let Some(endpoint) = &arguments.container_runtime_endpoint {
        return Ok(CriClient::new(endpoint.trim_start_matches("unix://")));
    }
    let places = ["agent/containerd/containerd.sock", "containerd/containerd.sock"];
    let sockets = places.map(|place| arguments.data_dir.join(place));
    let found = sockets
        .into_iter()
        .find(|path| path.try_exists().unwrap_or(false));
    let missing = || {
        format!(
            "no container runtime below {}: is the node agent running?",
            arguments.data_dir.display()
        )
    };
    Ok(CriClient::new(found.with_context(missing)?))
}

async fn import(arguments: &ImageArguments, archives: &[PathBuf]) -> anyhow::Result<()> {
    let client = client(arguments)?;
    let runtime = Runtime::real();
    for archive in archives {
        let names = import_archive(&runtime, &client, archive).await;
        for name in names.with_context(|| archive.display().to_string())? {
            print_line(&name)?;
        }
    }
    Ok(())
}

async fn list(arguments: &ImageArguments) -> anyhow::Result<()> {
    let answer = client(arguments)?
        .list_images(v1::ListImagesRequest { filter: None })
        .await?;
    let mut lines: Vec<String> = answer.images.iter().flat_map(lines_of).collect();
    lines.sort();
    lines.iter().try_for_each(|line| print_line(line))
}

fn lines_of(image: &v1::Image) -> Vec<String> {
    let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
    let size = image.size / 1024;
    let names = if image.repo_tags.is_empty() {
        &image.repo_digests
    } else {
        &image.repo_tags
    };
    names
        .iter()
        .map(|name| format!("{name}  {id}  {size} KiB"))
        .collect()
}

fn print_line(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}
