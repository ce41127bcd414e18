//! `knarr image`: images of a node. `import`, `export`, `ls`, [`pulling`] and [`removal`] speak to its container runtime, `build` makes an
//! archive of what knarr brings along.

mod pulling;
mod removal;

use crate::server::paths::Paths;
use anyhow::{Context, bail};
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
    /// Pulls images from their registries
    Pull {
        /// Names of the images
        #[arg(required = true)]
        images: Vec<String>,
        /// Docker's config.json with credentials of registries
        #[arg(long, value_name = "FILE")]
        docker_config: Option<PathBuf>,
    },
    /// Removes images that no container uses
    Rm {
        /// Names or ids of the images
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Removes all images that no container uses
    Prune,
    /// Writes an image to an archive in OCI layout
    Export {
        /// Full name of the image, as `ls` prints it
        image: String,
        /// File of the archive
        archive: PathBuf,
    },
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
        Action::Pull {
            images,
            docker_config,
        } => executor.block_on(pulling::pull(arguments, images, docker_config.as_ref())),
        Action::Rm { images } => executor.block_on(removal::remove(arguments, images)),
        Action::Prune => executor.block_on(removal::prune(arguments)),
        Action::Export { image, archive } => executor.block_on(export(arguments, image, archive)),
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

/// The archive has its name once it is whole.
async fn export(arguments: &ImageArguments, image: &str, archive: &Path) -> anyhow::Result<()> {
    let client = client(arguments)?;
    // A link or device, such as /dev/stdout, would be replaced.
    if std::fs::symlink_metadata(archive).is_ok_and(|found| !found.is_file()) {
        bail!("{} is there and is no file", archive.display());
    }
    let mut partial = archive.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let making = || format!("writing {}", partial.display());
    // Root may export into a folder of others: what is there already, a link say, is neither written through nor removed.
    let file = std::fs::File::create_new(&partial).with_context(making)?;
    let architecture = node_sys::machine::Machine::observe().architecture;
    let exported =
        node_cri::export::export(&client, image, architecture, std::io::BufWriter::new(file)).await;
    let written = exported.map_err(anyhow::Error::from).and_then(|mut out| {
        out.flush().with_context(making)?;
        std::fs::rename(&partial, archive).with_context(|| format!("writing {}", archive.display()))
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written?;
    print_line(&format!("{image} in {}", archive.display()))
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
