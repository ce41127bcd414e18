//! Files that are read again while the server runs, and put in use when their content has changed: authorities of client
//! certificates and the serving certificate. A content that cannot be used leaves what was in use.

use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// No file of this kind is longer.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The reason why a content cannot be used.
pub(crate) type Problem = Box<dyn std::error::Error + Send + Sync>;
type Apply = Box<dyn Fn(&[String]) -> Result<(), Problem> + Send>;

/// Files that are used together.
pub(crate) struct WatchedFiles {
    what: &'static str,
    paths: Vec<PathBuf>,
    /// Contents that were read last, used or not.
    seen: Vec<String>,
    /// Reason why they could not be read the last time.
    unreadable: Option<String>,
    apply: Apply,
}

/// The content of a file of bounded size. Text around the blocks of PEM may have any encoding.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is larger than 1 MiB",
        ));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl WatchedFiles {
    /// `seen` are the contents in use now.
    pub(crate) fn new(
        what: &'static str,
        paths: Vec<PathBuf>,
        seen: Vec<String>,
        apply: impl Fn(&[String]) -> Result<(), Problem> + Send + 'static,
    ) -> Self {
        Self {
            what,
            paths,
            seen,
            unreadable: None,
            apply: Box::new(apply),
        }
    }

    /// Adds an action on every content that could be used.
    pub(crate) fn and_then(self, more: impl Fn() -> Result<(), Problem> + Send + 'static) -> Self {
        let apply = self.apply;
        Self {
            apply: Box::new(move |texts| apply(texts).and_then(|()| more())),
            ..self
        }
    }

    /// Logs a problem once.
    fn cannot_read(&mut self, why: String) {
        if self.unreadable.as_ref() != Some(&why) {
            let what = self.what;
            tracing::error!(
                why,
                what,
                "a changed file cannot be read; the content before stays"
            );
            self.unreadable = Some(why);
        }
    }

    fn reload(&mut self) {
        let what = self.what;
        let contents: io::Result<Vec<String>> = self.paths.iter().map(|path| read(path)).collect();
        let contents = match contents {
            Ok(contents) => contents,
            // A file that is being replaced may be away for a moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return tracing::debug!(%error, what, "reading a file again");
            }
            Err(error) => return self.cannot_read(error.to_string()),
        };
        self.unreadable = None;
        if contents == self.seen {
            return;
        }
        match (self.apply)(&contents) {
            Ok(()) => tracing::info!(what, "a changed file is in use"),
            Err(error) => tracing::error!(error, what, "a changed file cannot be used; the one before stays"),
        }
        self.seen = contents;
    }
}

/// Files that are looked at together, as long as the server runs.
pub(crate) struct FileReload {
    files: Mutex<Vec<WatchedFiles>>,
    interval: Duration,
    runtime: Runtime,
}

impl FileReload {
    pub(crate) fn new(files: Vec<WatchedFiles>, interval: Duration, runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            files: Mutex::new(files),
            interval,
            runtime,
        })
    }

    /// Looks at all of them at the interval.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.runtime.sleep(self.interval).await;
            let own = Arc::clone(&self);
            let reload = move || own.files.lock().iter_mut().for_each(WatchedFiles::reload);
            if let Err(error) = self.runtime.blocking(reload).await {
                tracing::error!(%error, "checking files for changes failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        std::fs::write(&path, b"caf\xe9\n-----BEGIN").unwrap();
        assert_eq!(read(&path).unwrap(), "caf\u{fffd}\n-----BEGIN");
        let most = usize::try_from(MAX_FILE_BYTES).unwrap();
        std::fs::write(&path, vec![b'#'; most]).unwrap();
        assert_eq!(read(&path).unwrap().len(), most);
        std::fs::write(&path, vec![b'#'; most + 1]).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
