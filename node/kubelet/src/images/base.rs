//! The images knarr makes itself: pause for every sandbox, and a first workload. No registry is needed.
//!
//! Each is one layer with one static program (`cmd/knarr/base`) and the few files that programs expect.

use std::path::Path;

use machinery_runtime::Runtime;
use node_cri::archive::{ImageSource, TarWriter, digest, write_image, write_images};
use node_cri::import::{ImportLease, import};
use node_cri::{CriClient, CriError};

/// The sandbox's image.
pub const PAUSE_IMAGE: &str = "knarr.local/pause:1";
/// The first workload's image.
pub const HELLO_IMAGE: &str = "knarr.local/hello:1";

/// An import that takes longer than this is taken for dead.
const LEASE_SECONDS: i64 = 600;

/// Built-in image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseImage {
    /// Holds a sandbox's namespaces.
    Pause,
    /// Answers HTTP with its host name.
    Hello,
}

impl BaseImage {
    /// Its reference.
    pub fn reference(self) -> &'static str {
        match self {
            Self::Pause => PAUSE_IMAGE,
            Self::Hello => HELLO_IMAGE,
        }
    }

    /// Its archive in OCI layout, around the program given.
    pub fn archive(self, program: &[u8], architecture: &str) -> std::io::Result<Vec<u8>> {
        write_image(Vec::new(), &self.source(layer(program)?, architecture))
    }

    fn source(self, layer: Vec<u8>, architecture: &str) -> ImageSource {
        let (entrypoint, arguments) = match self {
            Self::Pause => (vec!["/base", "pause"], vec![]),
            Self::Hello => (vec!["/base"], vec!["hello"]),
        };
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_string).collect();
        ImageSource {
            names: vec![self.reference().to_string()],
            architecture: architecture.to_string(),
            layer,
            entrypoint: owned(entrypoint),
            arguments: owned(arguments),
            env: vec!["PATH=/".to_string()],
        }
    }
}

/// Writes both in one archive: their layer is the same.
fn archive(program: &[u8], architecture: &str) -> std::io::Result<Vec<u8>> {
    let layer = layer(program)?;
    let sources = [BaseImage::Pause, BaseImage::Hello].map(|image| image.source(layer.clone(), architecture));
    write_images(Vec::new(), &sources)
}

fn layer(program: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut tar = TarWriter::new(Vec::new());
    for (folder, mode) in [("etc", 0o755), ("tmp", 0o1777), ("var", 0o755), ("root", 0o700)] {
        tar.folder(folder, mode)?;
    }
    tar.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/base\nnobody:x:65534:65534:nobody:/:/base\n",
    )?;
    tar.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")?;
    tar.file("base", 0o755, program)?;
    tar.finish()
}

/// Imports every image of an archive.
pub async fn import_archive(
    runtime: &Runtime,
    cri: &CriClient,
    archive: &Path,
) -> Result<Vec<String>, CriError> {
    let ends = runtime
        .now()
        .checked_add(jiff::SignedDuration::from_secs(LEASE_SECONDS))
        .unwrap_or(runtime.now());
    let lease = ImportLease {
        name: format!("knarr-import-{:016x}", runtime.random_u64()),
        expires_at: ends.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    };
    import(cri, archive, lease).await
}

/// Makes sure that both images are there as this binary has them. `folder` remembers what was imported.
pub async fn ensure(
    runtime: &Runtime,
    cri: &CriClient,
    folder: &Path,
    program: &[u8],
    architecture: &str,
) -> Result<(), CriError> {
    let io = |source| CriError::Io {
        action: "making the base images",
        source,
    };
    std::fs::create_dir_all(folder).map_err(io)?;
    let mark = folder.join("base.digest");
    let now = digest(program);
    if std::fs::read_to_string(&mark).is_ok_and(|before| before == now) {
        return Ok(());
    }
    let path = folder.join("base.tar");
    std::fs::write(&path, archive(program, architecture).map_err(io)?).map_err(io)?;
    import_archive(runtime, cri, &path).await?;
    std::fs::remove_file(&path).map_err(io)?;
    std::fs::write(&mark, now).map_err(io)
}
