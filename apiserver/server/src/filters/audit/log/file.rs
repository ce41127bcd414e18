//! A file of lines that starts over when it is full. It never ends within a line while another one follows.

use super::AuditLogConfig;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Mode of the log as upstream's: it names users and what they do, which is nothing for others.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// lumberjack's form of the time in a full file's name.
const BACKUP_TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";
const MEBIBYTE: u64 = 1 << 20;
/// Bytes of lines that are put together for one write.
const WRITE_BYTES: usize = 1 << 20;

/// The destination of audit lines: a file, or in tests one without room.
pub(super) trait Sink: Write + fmt::Debug + Send {
    /// Takes the last bytes back; `false` where that cannot be.
    fn cut(&mut self, bytes: u64) -> bool;
}

impl Sink for File {
    fn cut(&mut self, bytes: u64) -> bool {
        // The length of now: another may have cut the file meanwhile.
        let cut = self.metadata().and_then(|found| match found.is_file() {
            true => self.set_len(found.len().saturating_sub(bytes)).map(|()| true),
            false => Ok(false),
        });
        cut.unwrap_or(false)
    }
}

#[derive(Debug)]
pub(super) struct RotatedFile {
    config: AuditLogConfig,
    file: Box<dyn Sink>,
    bytes: u64,
    /// Bytes at which it is full.
    limit: u64,
    /// The end of the last line, which was refused: it comes before anything else.
    rest: Vec<u8>,
}

impl RotatedFile {
    pub(super) fn open(config: AuditLogConfig) -> io::Result<Self> {
        if config.is_stdout() {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Self {
                limit: u64::MAX,
                ..Self::over(Box::new(file), config)
            });
        }
        if let Some(folder) = config.path.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(FOLDER_MODE).create(folder)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(FILE_MODE)
            .open(&config.path)?;
        let bytes = file.metadata()?.len();
        let rest = if ends_within_a_line(&config.path, bytes) {
            b"\n".to_vec()
        } else {
            Vec::new()
        };
        Ok(Self {
            bytes,
            rest,
            ..Self::over(Box::new(file), config)
        })
    }

    pub(super) fn over(file: Box<dyn Sink>, config: AuditLogConfig) -> Self {
        let limit = match config.max_size {
            0 => 100 * MEBIBYTE,
            size => size.saturating_mul(MEBIBYTE),
        };
        Self {
            config,
            file,
            bytes: 0,
            limit,
            rest: Vec::new(),
        }
    }

    /// Appends lines, each as a whole in one file. Returns the number of those that are there, and the error that kept the
    /// others away.
    pub(super) fn append(&mut self, lines: &[String], now: Timestamp) -> (usize, io::Result<()>) {
        let mut done = 0;
        while done < lines.len() {
            if self.bytes > 0 && self.is_beyond(lines[done].len()) {
                self.rotate_if_possible(now);
            }
            let mut text = lines[done].clone();
            let mut until = done + 1;
            for line in &lines[until..] {
                if text.len() + line.len() > WRITE_BYTES || self.is_beyond(text.len() + line.len()) {
                    break;
                }
                text.push_str(line);
                until += 1;
            }
            let (written, result) = self.write(text.as_bytes());
            if result.is_err() {
                return (done + self.cut_back(&lines[done..until], written), result);
            }
            done = until;
        }
        // Without a line: a rest may be left.
        (done, self.write(&[]).1)
    }

    fn is_beyond(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes as u64) > self.limit
    }

    /// Writes the rest of the last line, and then this text, as far as it is taken.
    fn write(&mut self, text: &[u8]) -> (usize, io::Result<()>) {
        let (count, result) = write_some(&mut *self.file, &self.rest);
        self.bytes += count as u64;
        self.rest.drain(..count);
        if result.is_err() {
            return (0, result);
        }
        let (count, result) = write_some(&mut *self.file, text);
        self.bytes += count as u64;
        (count, result)
    }

    /// Leaves whole lines in the file, of which it has taken the first `written` bytes; the number of them.
    fn cut_back(&mut self, lines: &[String], written: usize) -> usize {
        let (mut whole, mut whole_bytes) = (0, 0);
        while whole < lines.len() && whole_bytes + lines[whole].len() <= written {
            whole_bytes += lines[whole].len();
            whole += 1;
        }
        let torn = written - whole_bytes;
        if torn == 0 {
            return whole;
        }
        if self.file.cut(torn as u64) {
            self.bytes -= torn as u64;
            return whole;
        }
        self.rest = lines[whole].as_bytes()[torn..].to_vec();
        whole + 1
    }

    /// Begins a new file, or goes on in this one for another mebibyte.
    fn rotate_if_possible(&mut self, now: Timestamp) {
        if let Err(error) = self.rotate(now) {
            tracing::error!(%error, path = %self.config.path.display(), "the full audit log cannot be renamed");
            self.limit = self.bytes.saturating_add(MEBIBYTE);
        }
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        if !self.rest.is_empty() {
            return Err(io::Error::other("its last line is not written as a whole"));
        }
        let path = self.config.path.clone();
        let mut time = now;
        let mut backup = backup_path(&path, time);
        // Two in one millisecond are not to be one.
        while backup.try_exists()? {
            time += SignedDuration::from_millis(1);
            backup = backup_path(&path, time);
        }
        fs::rename(&path, &backup)?;
        match Self::open(self.config.clone()) {
            Ok(new) => *self = new,
            Err(error) => {
                fs::rename(&backup, &path)?;
                return Err(error);
            }
        }
        if let Err(error) = self.remove_old(now) {
            tracing::error!(%error, path = %path.display(), "listing old audit logs");
        }
        Ok(())
    }

    /// Removes what is too old or too many; what stays is named in the log.
    fn remove_old(&self, now: Timestamp) -> io::Result<()> {
        let mut backups = backups(&self.config.path)?;
        // The newest first: their names sort by time.
        backups.sort_unstable_by(|one, other| other.cmp(one));
        let oldest = (self.config.max_age > 0)
            .then(|| now - SignedDuration::from_hours(24 * i64::from(self.config.max_age)))
            .map(|time| backup_path(&self.config.path, time));
        for (at, backup) in backups.iter().enumerate() {
            let is_over = self.config.max_backups > 0 && at >= self.config.max_backups;
            let is_old = oldest.as_ref().is_some_and(|oldest| backup < oldest);
            if !is_over && !is_old {
                continue;
            }
            if let Err(error) = fs::remove_file(backup) {
                tracing::error!(%error, path = %backup.display(), "an old audit log cannot be removed");
            }
        }
        Ok(())
    }
}

/// Writes as much as is taken, and says how much that is.
fn write_some(file: &mut dyn Sink, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut count = 0;
    while count < bytes.len() {
        match file.write(&bytes[count..]) {
            Ok(0) => return (count, Err(ErrorKind::WriteZero.into())),
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (count, Err(error)),
        }
    }
    (count, Ok(()))
}

/// A server that was killed, or a machine without power, may have left a part of a line.
fn ends_within_a_line(path: &Path, bytes: u64) -> bool {
    let Some(last) = bytes.checked_sub(1) else {
        return false;
    };
    let mut byte = [b'\n'];
    let read = File::open(path).and_then(|file| file.read_at(&mut byte, last));
    read.is_ok() && byte != [b'\n']
}

/// `audit.log` becomes `audit-2026-11-22T10-57-00.123.log`.
fn backup_path(path: &Path, time: Timestamp) -> PathBuf {
    let (stem, extension) = stem_and_extension(path);
    path.with_file_name(format!("{stem}-{}{extension}", time.strftime(BACKUP_TIME)))
}

fn stem_and_extension(path: &Path) -> (String, String) {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    match name.rfind('.') {
        Some(at) => (name[..at].to_owned(), name[at..].to_owned()),
        None => (name, String::new()),
    }
}

fn backups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (stem, extension) = stem_and_extension(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let time = name
            .strip_prefix(&format!("{stem}-"))
            .and_then(|rest| rest.strip_suffix(&extension));
        let is_backup = time.is_some_and(|time| jiff::civil::DateTime::strptime(BACKUP_TIME, time).is_ok());
        if is_backup {
            found.push(path.with_file_name(name));
        }
    }
    Ok(found)
}
