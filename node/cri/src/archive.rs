//! Image archives: a tar in OCI layout, written from files and read back.
//!
//! Only what such archives hold is understood: plain files and folders, and on reading the long names
//! that tools write as pax records or GNU entries.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

const BLOCK: usize = 512;
/// No file of an image is larger; a larger size is damage.
const FILE_BYTES_MAX: u64 = 1 << 50;

/// Writes a tar to anything.
#[derive(Debug)]
pub struct TarWriter<W: Write> {
    out: W,
}

impl<W: Write> TarWriter<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Self {
        Self { out }
    }

    /// Adds a folder.
    pub fn folder(&mut self, name: &str, mode: u32) -> io::Result<()> {
        self.header(&format!("{}/", name.trim_end_matches('/')), 0, mode, b'5', "")
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let size = content.len() as u64;
        self.begin_file(name, mode, size)?;
        self.write(content)?;
        self.end_file(size)
    }

    /// Begins a file of which the content follows by [`Self::write`].
    pub fn begin_file(&mut self, name: &str, mode: u32, size: u64) -> io::Result<()> {
        self.header(name, size, mode, b'0', "")
    }

    /// Adds content of the file that was begun.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.out.write_all(content)
    }

    /// Ends the file that was begun with this size.
    pub fn end_file(&mut self, size: u64) -> io::Result<()> {
        let rest = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        if rest > 0 {
            self.out.write_all(&[0; BLOCK][rest..])?;
        }
        Ok(())
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.header(name, 0, 0o777, b'2', target)
    }

    /// Ends the archive and returns what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; BLOCK * 2])?;
        Ok(self.out)
    }

    fn header(&mut self, name: &str, size: u64, mode: u32, kind: u8, target: &str) -> io::Result<()> {
        let (prefix, name) = split_name(name)?;
        let mut block = [0_u8; BLOCK];
        put(&mut block[0..100], name.as_bytes());
        put(&mut block[100..108], format!("{mode:07o}").as_bytes());
        put(&mut block[108..116], b"0000000");
        put(&mut block[116..124], b"0000000");
        put(&mut block[124..136], format!("{size:011o}").as_bytes());
        put(&mut block[136..148], b"00000000000");
        block[156] = kind;
        put(&mut block[157..257], target.as_bytes());
        put(&mut block[257..265], b"ustar\x0000");
        put(&mut block[345..500], prefix.as_bytes());
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        put(&mut block[148..156], format!("{sum:06o}\0 ").as_bytes());
        self.out.write_all(&block)
    }
}

fn put(field: &mut [u8], value: &[u8]) {
    field[..value.len()].copy_from_slice(value);
}

fn split_name(name: &str) -> io::Result<(&str, &str)> {
    if name.len() <= 100 {
        return Ok(("", name));
    }
    let at = name
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| name.as_bytes()[*at] == b'/' && *at <= 155 && name.len() - at - 1 <= 100);
    at.map(|at| (&name[..at], &name[at + 1..]))
        .ok_or_else(|| io::Error::other("a file name is too long for tar"))
}

/// One file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarEntry {
    /// Its name, without a leading `./`.
    pub name: String,
    /// Its size.
    pub size: u64,
}

/// Reads a tar file by file.
#[derive(Debug)]
pub struct TarReader<R: Read> {
    input: R,
    /// Bytes of the current file not read yet, and the padding after it.
    left: u64,
    padding: u64,
}

impl<R: Read> TarReader<R> {
    /// Reads from the start of an archive.
    pub fn new(input: R) -> Self {
        Self {
            input,
            left: 0,
            padding: 0,
        }
    }

    /// The next plain file; its content is read through [`Read`] on this reader.
    pub fn next_file(&mut self) -> io::Result<Option<TarEntry>> {
        let mut long_name = None;
        loop {
            self.skip_rest()?;
            let mut block = [0_u8; BLOCK];
            match self.input.read_exact(&mut block) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                result => result?,
            }
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            self.left = number(&block[124..136])?;
            if self.left > FILE_BYTES_MAX {
                return Err(io::Error::other("a file in the archive is impossibly large"));
            }
            self.padding = self.left.next_multiple_of(BLOCK as u64) - self.left;
            match block[156] {
                b'x' => long_name = pax_path(&self.read_small()?).or(long_name),
                b'L' => long_name = Some(text(&self.read_small()?)),
                b'0' | 0 => {
                    let name = long_name.take().unwrap_or_else(|| plain_name(&block));
                    let name = name.trim_start_matches("./").to_string();
                    return Ok(Some(TarEntry {
                        name,
                        size: self.left,
                    }));
                }
                _ => long_name = None,
            }
        }
    }

    /// The whole current file, which must be small (an index or a manifest).
    pub fn read_small(&mut self) -> io::Result<Vec<u8>> {
        const SMALL_BYTES_MAX: u64 = 4 << 20;
        if self.left > SMALL_BYTES_MAX {
            return Err(io::Error::other("a file that should be small is not"));
        }
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        Ok(content)
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let bytes = self.left + self.padding;
        let copied = io::copy(&mut (&mut self.input).take(bytes), &mut io::sink())?;
        (self.left, self.padding) = (0, 0);
        if copied < bytes {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.input).take(self.left).read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn plain_name(block: &[u8; BLOCK]) -> String {
    let (name, prefix) = (text(&block[0..100]), text(&block[345..500]));
    if prefix.is_empty() || &block[257..262] != b"ustar" {
        name
    } else {
        format!("{prefix}/{name}")
    }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn number(field: &[u8]) -> io::Result<u64> {
    if field[0] & 0x80 != 0 {
        // GNU writes large sizes in base 256.
        return Ok(field[4..]
            .iter()
            .fold(0, |value, byte| (value << 8) | u64::from(*byte)));
    }
    let digits = text(field);
    u64::from_str_radix(digits.trim(), 8).map_err(|_| io::Error::other("a size in the archive is unreadable"))
}

fn pax_path(records: &[u8]) -> Option<String> {
    let records = String::from_utf8_lossy(records);
    records
        .lines()
        .find_map(|line| line.split_once(' ')?.1.strip_prefix("path=").map(str::to_string))
}

/// `sha256:<hex>` of some bytes.
pub fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(content)))
}

/// Lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}

/// Parts of an image of one layer.
#[derive(Debug, Clone, Default)]
pub struct ImageSource {
    /// The full reference, also with several tags.
    pub names: Vec<String>,
    /// Go's name of the architecture.
    pub architecture: String,
    /// The layer: an uncompressed tar.
    pub layer: Vec<u8>,
    /// The command, which a container may replace.
    pub entrypoint: Vec<String>,
    /// Its arguments, which a container may replace on their own.
    pub arguments: Vec<String>,
    /// Environment as `NAME=value`.
    pub env: Vec<String>,
}

/// Writes an image as an archive in OCI layout.
pub fn write_image<W: Write>(out: W, source: &ImageSource) -> io::Result<W> {
    write_images(out, std::slice::from_ref(source))
}

/// Writes images as one archive in OCI layout; what they share is in it once.
pub fn write_images<W: Write>(out: W, sources: &[ImageSource]) -> io::Result<W> {
    let mut tar = TarWriter::new(out);
    tar.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let (mut written, mut entries) = (BTreeSet::new(), Vec::new());
    for source in sources {
        let layer = digest(&source.layer);
        let config = configuration(source, &layer);
        let manifest = manifest(source, &layer, &config);
        let documents = [&config, &manifest].map(|text| (digest(text.as_bytes()), text.as_bytes()));
        for (name, blob) in documents.into_iter().chain([(layer, source.layer.as_slice())]) {
            let path = format!("blobs/sha256/{}", name.trim_start_matches("sha256:"));
            if written.insert(name) {
                tar.file(&path, 0o644, blob)?;
            }
        }
        entries.extend(source.names.iter().map(|name| index_entry(name, &manifest)));
    }
    let index = serde_json::json!({"schemaVersion": 2, "manifests": entries}).to_string();
    tar.file("index.json", 0o644, index.as_bytes())?;
    tar.finish()
}

fn configuration(source: &ImageSource, layer: &str) -> String {
    serde_json::json!({
        "architecture": source.architecture, "os": "linux",
        "config": {"Entrypoint": source.entrypoint, "Cmd": source.arguments, "Env": source.env, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created_by": "knarr"}],
    })
    .to_string()
}

fn manifest(source: &ImageSource, layer: &str, config: &str) -> String {
    serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                   "digest": digest(config.as_bytes()), "size": config.len()},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": source.layer.len()}],
    })
    .to_string()
}

fn index_entry(name: &str, manifest: &str) -> serde_json::Value {
    serde_json::json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": digest(manifest.as_bytes()), "size": manifest.len(),
        "annotations": {"io.containerd.image.name": name},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_written_is_read_back() {
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(60));
        let mut tar = TarWriter::new(Vec::new());
        tar.folder("etc", 0o755).unwrap();
        tar.file("etc/x", 0o644, b"hello").unwrap();
        tar.file(&long, 0o644, &[7; 600]).unwrap();
        let bytes = tar.finish().unwrap();
        let mut reader = TarReader::new(bytes.as_slice());
        assert_eq!(
            reader.next_file().unwrap().unwrap(),
            TarEntry {
                name: "etc/x".into(),
                size: 5
            }
        );
        assert_eq!(reader.read_small().unwrap(), b"hello");
        assert_eq!(reader.next_file().unwrap().unwrap().name, long);
        assert_eq!(reader.next_file().unwrap(), None);
    }

    #[test]
    fn images_of_one_archive_share_what_is_the_same() {
        let image = |name: &str| ImageSource {
            names: vec![name.into()],
            arguments: vec![name.into()],
            layer: vec![1; 700],
            ..ImageSource::default()
        };
        let bytes = write_images(Vec::new(), &[image("example/a:1"), image("example/b:1")]).unwrap();
        let mut reader = TarReader::new(bytes.as_slice());
        let mut blobs = 0;
        while let Some(entry) = reader.next_file().unwrap() {
            blobs += usize::from(entry.name.starts_with("blobs/"));
            if entry.name == "index.json" {
                let index: serde_json::Value = serde_json::from_slice(&reader.read_small().unwrap()).unwrap();
                let names =
                    [0, 1].map(|at| &index["manifests"][at]["annotations"]["io.containerd.image.name"]);
                assert_eq!(names, ["example/a:1", "example/b:1"]);
            }
        }
        assert_eq!(blobs, 5, "a configuration and a manifest each, and one layer");
    }

    #[test]
    fn archive_fuzz_never_panics() {
        let image = ImageSource {
            names: vec!["example/a:1".into()],
            layer: vec![1; 700],
            ..ImageSource::default()
        };
        let good = write_image(Vec::new(), &image).unwrap();
        let mut large = good.clone();
        large[124..136].copy_from_slice(&[0xff; 12]);
        machinery_fuzz::fuzz([good, large], |input| {
            machinery_fuzz::in_proportion(input, 4, || {
                let mut reader = TarReader::new(input);
                while let Ok(Some(_)) = reader.next_file() {
                    if let Ok(content) = reader.read_small() {
                        assert!(content.len() <= input.len());
                    }
                }
            });
        });
    }

    #[test]
    fn archive_truncated_is_an_error() {
        let mut tar = TarWriter::new(Vec::new());
        tar.file("a", 0o644, &[1; 2000]).unwrap();
        let bytes = tar.finish().unwrap();
        let mut reader = TarReader::new(&bytes[..1500]);
        reader.next_file().unwrap();
        assert!(reader.read_small().is_err());
    }
}
