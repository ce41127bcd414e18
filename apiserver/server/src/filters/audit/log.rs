//! The audit log: lines of a file, which is renamed when it is full, as upstream's (lumberjack) does it.
//!
//! As in upstream's mode `blocking`, a request goes on once its line is written, and its answer is sent after its last
//! line. Lines that come while others are written are written next, all at once. A line is written when the kernel has
//! it; none is synchronised to the disk.
//!
//! No line is dropped while the server runs. A request whose first line finds [`QUEUE`] lines waiting waits until some are
//! written; the further lines of a request that has begun are always taken, so that there are at most as many more as
//! requests in progress. A file that cannot be written to is told in the log and in `apiserver_audit_error_total`.

use jiff::{SignedDuration, Timestamp};
use machinery_runtime::Runtime;
use prometheus::IntCounterVec;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc, oneshot};

/// Lines that wait to be written; more requests wait for room.
const QUEUE: usize = 4_096;
/// As upstream: the log names users and what they do, which is nothing for others.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// lumberjack's form of the time in a full file's name.
const BACKUP_TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";
const MEBIBYTE: u64 = 1 << 20;

/// `--audit-log-path` and its companions.
#[derive(Debug, Clone)]
pub struct AuditLogConfig {
    pub path: PathBuf,
    /// Days that full files are kept; 0 keeps them.
    pub max_age: u32,
    /// Full files that are kept; 0 keeps all.
    pub max_backups: usize,
    /// Mebibytes at which a file is full; 0 is upstream's 100.
    pub max_size: u64,
}

impl AuditLogConfig {
    /// With upstream's defaults.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            max_age: 366,
            max_backups: 100,
            max_size: 100,
        }
    }

    /// As upstream, `-` is the standard output, which never begins anew.
    fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }
}

/// Takes lines.
#[derive(Debug)]
pub(crate) struct AuditLog {
    lines: mpsc::UnboundedSender<Item>,
    backlog: Arc<Backlog>,
}

/// A line, or none, and the receiver of the news that everything up to it is written.
#[derive(Debug)]
struct Item {
    line: Option<String>,
    written: oneshot::Sender<()>,
}

/// A line on its way to the file.
#[derive(Debug)]
pub(super) struct Written(oneshot::Receiver<()>);

impl Written {
    /// Resolves when the line is written, or could not be.
    pub(super) async fn done(self) {
        // A server that has ended writes nothing any more.
        let _ = self.0.await;
    }
}

#[derive(Debug, Default)]
struct Backlog {
    lines: AtomicUsize,
    written: Notify,
}

impl AuditLog {
    /// Appends to a file, in a task of the server.
    pub(crate) fn open(config: AuditLogConfig, runtime: &Runtime, errors: IntCounterVec) -> io::Result<Self> {
        let file = RotatedFile::open(config.clone())?;
        let (lines, items) = mpsc::unbounded_channel();
        let backlog = Arc::new(Backlog::default());
        let writer = Writer {
            config,
            items,
            file: Some(file),
            unwritten: Arc::default(),
            waiting: Vec::new(),
            backlog: Arc::clone(&backlog),
            runtime: runtime.clone(),
            errors,
        };
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        let write = move || {
            let writer = Arc::clone(&writer);
            async move { writer.lock().await.run().await }
        };
        runtime.supervise("audit", write).detach();
        Ok(Self { lines, backlog })
    }

    /// Resolves when a further request may begin.
    pub(crate) async fn room(&self) {
        loop {
            let written = self.backlog.written.notified();
            if self.backlog.lines.load(Ordering::Acquire) < QUEUE {
                return;
            }
            written.await;
        }
    }

    pub(super) fn write(&self, line: String) -> Written {
        self.backlog.lines.fetch_add(1, Ordering::AcqRel);
        self.send(Some(line))
    }

    fn send(&self, line: Option<String>) -> Written {
        let (written, told) = oneshot::channel();
        let is_line = line.is_some();
        // Only a server that has ended takes none.
        if self.lines.send(Item { line, written }).is_err() && is_line {
            tracing::error!("an audit event came after the end of the audit log");
        }
        Written(told)
    }

    /// Resolves when what was written before is in the file.
    pub(crate) async fn flush(&self) {
        self.send(None).done().await;
    }
}

/// Writes the lines. It outlives a panic of its work: what was taken and not written is written next.
struct Writer {
    config: AuditLogConfig,
    items: mpsc::UnboundedReceiver<Item>,
    /// `None` after a panic while it was written to.
    file: Option<RotatedFile>,
    unwritten: Arc<Vec<String>>,
    waiting: Vec<oneshot::Sender<()>>,
    backlog: Arc<Backlog>,
    runtime: Runtime,
    errors: IntCounterVec,
}

impl Writer {
    /// Until there is nobody left to write a line.
    async fn run(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() || self.take().await {
            self.write().await?;
            self.backlog
                .lines
                .fetch_sub(self.unwritten.len(), Ordering::AcqRel);
            self.unwritten = Arc::default();
            self.backlog.written.notify_waiters();
            for written in self.waiting.drain(..) {
                // A client that went waits no more.
                let _ = written.send(());
            }
        }
        Ok(())
    }

    async fn take(&mut self) -> bool {
        let mut batch = Vec::new();
        let any = self.items.recv_many(&mut batch, QUEUE).await > 0;
        let (lines, waiting): (Vec<_>, _) = batch.into_iter().map(|item| (item.line, item.written)).unzip();
        self.unwritten = Arc::new(lines.into_iter().flatten().collect());
        self.waiting = waiting;
        any
    }

    async fn write(&mut self) -> Result<(), String> {
        let (now, lines, config) = (
            self.runtime.now(),
            Arc::clone(&self.unwritten),
            self.config.clone(),
        );
        let file = self.file.take();
        let written = self.runtime.blocking(move || {
            let mut own = match file {
                Some(file) => file,
                None => RotatedFile::open(config)?,
            };
            let result = own.append(&lines, now);
            Ok((own, result))
        });
        let opened: io::Result<_> = written.await.map_err(|ended| ended.to_string())?;
        let result = opened.and_then(|(own, result)| {
            self.file = Some(own);
            result
        });
        if let Err(error) = result {
            self.errors.with_label_values(&["log"]).inc();
            tracing::error!(%error, count = self.unwritten.len(), "writing the audit log");
        }
        Ok(())
    }
}

/// A file that begins anew when it is full.
#[derive(Debug)]
struct RotatedFile {
    config: AuditLogConfig,
    file: File,
    bytes: u64,
}

impl RotatedFile {
    fn open(config: AuditLogConfig) -> io::Result<Self> {
        if config.is_stdout() {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Self {
                config,
                file,
                bytes: 0,
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
        Ok(Self { config, file, bytes })
    }

    fn limit(&self) -> u64 {
        match self.config.max_size {
            _ if self.config.is_stdout() => u64::MAX,
            0 => 100 * MEBIBYTE,
            size => size * MEBIBYTE,
        }
    }

    /// Each line stands in one file as a whole.
    fn append(&mut self, lines: &[String], now: Timestamp) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            let bytes = self.bytes + text.len() as u64;
            if bytes > 0 && bytes + line.len() as u64 > self.limit() {
                self.write(&text)?;
                text.clear();
                self.rotate(now)?;
            }
            text.push_str(line);
        }
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let path = &self.config.path;
        let mut time = now;
        let mut backup = backup_path(path, time);
        // Two in one millisecond are not to be one.
        while backup.try_exists()? {
            time += SignedDuration::from_millis(1);
            backup = backup_path(path, time);
        }
        fs::rename(path, backup)?;
        *self = Self::open(self.config.clone())?;
        self.remove_old(now)
    }

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
            if is_over || is_old {
                fs::remove_file(backup)?;
            }
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(path: &Path) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn audit_log_folder_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit/audit.log");
        let mut file = RotatedFile::open(AuditLogConfig::new(path.clone())).unwrap();
        file.append(&["{}\n".to_owned()], Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(lines_of(&path), 1);
    }

    #[test]
    fn audit_log_full_files_are_renamed_and_old_ones_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(folder.path().join("audit-notes.log"), "mine\n").unwrap();
        let config = AuditLogConfig {
            max_size: 1,
            max_backups: 2,
            ..AuditLogConfig::new(path.clone())
        };
        let mut file = RotatedFile::open(config).unwrap();
        let third = "x".repeat(400_000) + "\n";
        let began: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for hour in 0..5 {
            let now = began + SignedDuration::from_hours(hour);
            file.append(&[third.clone(), third.clone()], now).unwrap();
        }
        let mut found = backups(&path).unwrap();
        found.sort();
        let names: Vec<_> = found
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        assert_eq!(
            names,
            [
                "audit-2026-01-01T03-00-00.000.log",
                "audit-2026-01-01T04-00-00.000.log"
            ]
        );
        assert_eq!(
            [lines_of(&found[0]), lines_of(&found[1]), lines_of(&path)],
            [2, 2, 2]
        );
        // Age counts as well.
        let year = began + SignedDuration::from_hours(24 * 400);
        file.append(&[third.clone(), third], year).unwrap();
        assert_eq!(backups(&path).unwrap().len(), 1);
        assert_eq!(lines_of(&folder.path().join("audit-notes.log")), 1);
    }

    fn open(path: &Path) -> AuditLog {
        let errors = IntCounterVec::new(prometheus::Opts::new("e", "e"), &["plugin"]).unwrap();
        AuditLog::open(AuditLogConfig::new(path.to_owned()), &Runtime::real(), errors).unwrap()
    }

    #[tokio::test]
    async fn audit_log_tells_of_a_line_when_it_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let log = open(&path);
        let written: Vec<_> = (0..100).map(|_| log.write("{}\n".to_owned())).collect();
        assert_eq!(lines_of(&path), 0, "the writer has had no turn");
        for (number, written) in written.into_iter().enumerate() {
            written.done().await;
            assert!(lines_of(&path) > number);
        }
        // A file that cannot be written to keeps nobody.
        let full = open(Path::new("/dev/full"));
        full.write("{}\n".to_owned()).done().await;
    }

    #[tokio::test]
    async fn audit_log_requests_wait_for_room_and_no_line_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let log = open(&path);
        // The writer has no turn before the first wait.
        for _ in 0..QUEUE + 10 {
            log.write("{}\n".to_owned());
        }
        let mut room = std::pin::pin!(log.room());
        assert!(futures::poll!(room.as_mut()).is_pending());
        room.await;
        log.flush().await;
        assert_eq!(lines_of(&path), QUEUE + 10);
    }
}
