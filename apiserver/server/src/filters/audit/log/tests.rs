use super::file::Sink;
use super::*;
use jiff::{SignedDuration, Timestamp};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

/// A file on a disk with so much room. A pipe takes nothing back.
#[derive(Debug)]
struct Limited {
    file: File,
    room: Arc<AtomicUsize>,
    is_pipe: bool,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room.load(Ordering::Acquire));
        if count == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        let count = self.file.write(&bytes[..count])?;
        self.room.fetch_sub(count, Ordering::AcqRel);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Limited {
    fn cut(&mut self, bytes: u64) -> bool {
        !self.is_pipe && self.file.cut(bytes)
    }
}

fn limited(path: &Path, room: usize, is_pipe: bool) -> (RotatedFile, Arc<AtomicUsize>) {
    let room = Arc::new(AtomicUsize::new(room));
    let sink = Limited {
        file: File::options().create(true).append(true).open(path).unwrap(),
        room: Arc::clone(&room),
        is_pipe,
    };
    (
        RotatedFile::over(Box::new(sink), AuditLogConfig::new(path.to_owned())),
        room,
    )
}

fn lines_of(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().lines().count()
}

fn errors() -> IntCounterVec {
    IntCounterVec::new(prometheus::Opts::new("e", "e"), &["plugin"]).unwrap()
}

fn open(path: &Path) -> AuditLog {
    AuditLog::open(AuditLogConfig::new(path.to_owned()), &Runtime::real(), errors()).unwrap()
}

const LINES: [&str; 3] = ["{\"a\":1}\n", "{\"b\":2}\n", "{\"c\":3}\n"];

fn lines() -> Vec<String> {
    LINES.map(str::to_owned).to_vec()
}

#[test]
fn audit_log_has_whole_lines_on_a_full_disk_and_each_once() {
    let now = Timestamp::UNIX_EPOCH;
    for is_pipe in [false, true] {
        for room in 0..24 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("audit");
            let (mut file, left) = limited(&path, room, is_pipe);
            let (count, result) = file.append(&lines(), now);
            assert!(result.is_err(), "{room}");
            let text = fs::read_to_string(&path).unwrap();
            if !is_pipe {
                assert_eq!(
                    text,
                    LINES[..room / 8].concat(),
                    "a line that is cut is taken back"
                );
                assert_eq!(count, room / 8);
            }
            left.store(1_000, Ordering::Release);
            let (_, result) = file.append(&lines()[count..], now);
            result.unwrap();
            assert_eq!(
                fs::read_to_string(&path).unwrap(),
                LINES.concat(),
                "{room} {is_pipe}"
            );
        }
    }
}

#[test]
fn audit_log_begins_a_line_behind_one_that_a_killed_server_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    fs::write(&path, "{\"whole\":1}\n{\"cu").unwrap();
    for _ in 0..2 {
        let mut file = RotatedFile::open(AuditLogConfig::new(path.clone())).unwrap();
        file.append(&lines()[..1], Timestamp::UNIX_EPOCH).1.unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, "{\"whole\":1}\n{\"cu\n{\"a\":1}\n{\"a\":1}\n");
}

#[test]
fn audit_log_folder_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs/audit/audit.log");
    let mut file = RotatedFile::open(AuditLogConfig::new(path.clone())).unwrap();
    file.append(&lines(), Timestamp::UNIX_EPOCH).1.unwrap();
    assert_eq!(lines_of(&path), 3);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&path), mode(path.parent().unwrap())], [0o600, 0o700]);
}

fn small(path: &Path) -> AuditLogConfig {
    AuditLogConfig {
        max_size: 1,
        max_backups: 2,
        ..AuditLogConfig::new(path.to_owned())
    }
}

fn backups(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("audit-2"))
        .collect();
    names.sort();
    names
}

#[test]
fn audit_log_full_files_are_renamed_and_old_ones_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    fs::write(folder.path().join("audit-notes.log"), "mine\n").unwrap();
    let mut file = RotatedFile::open(small(&path)).unwrap();
    let third = "x".repeat(400_000) + "\n";
    let began: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for hour in 0..5 {
        let now = began + SignedDuration::from_hours(hour);
        file.append(&[third.clone(), third.clone()], now).1.unwrap();
    }
    let names = backups(folder.path());
    assert_eq!(
        names,
        [
            "audit-2026-01-01T03-00-00.000.log",
            "audit-2026-01-01T04-00-00.000.log"
        ]
    );
    let lines = names.iter().map(|name| lines_of(&folder.path().join(name)));
    assert_eq!(lines.chain([lines_of(&path)]).collect::<Vec<_>>(), [2, 2, 2]);
    // Age counts as well.
    let year = began + SignedDuration::from_hours(24 * 400);
    file.append(&[third.clone(), third], year).1.unwrap();
    assert_eq!(backups(folder.path()).len(), 1);
    assert_eq!(lines_of(&folder.path().join("audit-notes.log")), 1);
}

#[test]
fn audit_log_goes_on_where_an_old_file_cannot_be_removed_or_the_full_one_be_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    // A folder cannot be removed as a file.
    fs::create_dir(folder.path().join("audit-2020-01-01T00-00-00.000.log")).unwrap();
    let mut file = RotatedFile::open(small(&path)).unwrap();
    let lines = vec!["x".repeat(600_000) + "\n"; 8];
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let (count, result) = file.append(&lines, now);
    assert!(result.is_ok() && count == 8, "{result:?}");
    assert_eq!(backups(folder.path()).len(), 3, "two and the one that stays");
    // A file that was taken away has no name to change.
    fs::remove_file(&path).unwrap();
    let (count, result) = file.append(&lines, now);
    assert!(result.is_ok() && count == 8, "{result:?}");
}

#[tokio::test]
async fn audit_log_tells_of_a_line_when_it_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let log = open(&path);
    let written: Vec<_> = (0..100).map(|_| log.write("{}\n".to_owned())).collect();
    assert_eq!(lines_of(&path), 0, "the writer has had no turn");
    for (number, written) in written.into_iter().enumerate() {
        assert!(written.done().await);
        assert!(lines_of(&path) > number);
    }
    // A file that cannot be written to keeps no request.
    let full = open(Path::new("/dev/full"));
    assert!(!full.write("{}\n".to_owned()).done().await && !full.is_written());
    assert_eq!(full.errors.with_label_values(&[PLUGIN]).get(), 1);
}

#[tokio::test]
async fn audit_log_keeps_lines_that_a_full_disk_refused_and_writes_them_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let (file, room) = limited(&path, 12, false);
    let config = AuditLogConfig::new(path.clone());
    let log = AuditLog::over(file, config, &Runtime::real(), errors());
    let written: Vec<_> = lines().into_iter().map(|line| log.write(line)).collect();
    let told: Vec<bool> = futures::future::join_all(written.into_iter().map(Written::done)).await;
    assert_eq!(told, [true, false, false]);
    assert!(!log.is_written());
    assert_eq!(log.errors.with_label_values(&[PLUGIN]).get(), 2);
    // More than may be kept: what came first is.
    let large = "y".repeat(KEPT_BYTES / 4 - 1) + "\n";
    for _ in 0..6 {
        assert!(!log.write(large.clone()).done().await);
    }
    room.store(usize::MAX / 2, Ordering::Release);
    log.flush().await;
    assert!(log.is_written());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&LINES.concat()));
    assert_eq!(
        text.lines().count(),
        3 + 3,
        "the fourth would be beyond the bound"
    );
    assert_eq!(log.errors.with_label_values(&[PLUGIN]).get(), 8);
}

#[tokio::test]
async fn audit_log_requests_wait_for_room_and_no_line_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    for (count, line) in [(QUEUE + 10, 3), (40, QUEUE_BYTES / 32)] {
        let path = folder.path().join(format!("audit-{count}"));
        let log = open(&path);
        // The writer has no turn before the first wait.
        for _ in 0..count {
            log.write("{".repeat(line - 1) + "\n");
        }
        let mut room = std::pin::pin!(log.wait_for_capacity());
        assert!(futures::poll!(room.as_mut()).is_pending(), "{count}");
        room.await;
        log.flush().await;
        assert_eq!(lines_of(&path), count);
    }
}

#[tokio::test]
async fn audit_log_in_mode_batch_keeps_nobody_waiting_and_drops_what_is_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let config = AuditLogConfig {
        mode: AuditMode::Batch,
        ..AuditLogConfig::new(path.clone())
    };
    let buffer = config.buffer_size;
    let log = AuditLog::open(config, &Runtime::real(), errors()).unwrap();
    for _ in 0..buffer + 10 {
        log.wait_for_capacity().await;
        assert!(log.write("{}\n".to_owned()).done().await);
    }
    assert_eq!(log.errors.with_label_values(&[BUFFER]).get(), 10);
    log.flush().await;
    assert_eq!(lines_of(&path), buffer);
}
