//! Starting programs. The only place in the workspace's node side that makes a `Command`.
//!
//! [`Exec::run`] waits for a short-lived tool and returns what it printed; [`stream`] hands that on as it comes; [`Daemon`]
//! starts a program that must outlive us, in a session of its own.

use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::process::{OwnRecord, ProcessIdentity};

/// Bytes that are kept of each stream of a tool; the rest is read and dropped.
pub const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Bytes of a piece that [`stream`] hands on.
const PIECE_BYTES: usize = 32 << 10;

/// Failure of running a program.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The program could not be started.
    #[error("starting {program}")]
    Start {
        /// The program's name.
        program: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Talking to the running program failed.
    #[error("running {program}")]
    Run {
        /// The program's name.
        program: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The program ended with a failure.
    #[error("{program} failed with {status}: {stderr}")]
    Failed {
        /// The program's name.
        program: String,
        /// Exit status in words.
        status: String,
        /// Text of its error stream, trimmed.
        stderr: String,
    },
}

/// A program, its arguments, environment and input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program: a path, or a name looked up in `PATH`.
    pub program: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables added to our own environment.
    pub env: Vec<(String, String)>,
    /// Written to standard input, then closed.
    pub stdin: Vec<u8>,
}

impl CommandSpec {
    /// A command without arguments.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            ..Self::default()
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: Into<String>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the input.
    #[must_use]
    pub fn stdin(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.stdin = input.into();
        self
    }
}

/// Output of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code; a signal counts as 128 plus its number, as a shell has it.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl CommandOutput {
    /// The output, or an error that carries what the program complained about.
    pub fn success(self, program: &str) -> Result<Self, ExecError> {
        if self.code == 0 {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.stderr).trim().to_string();
        Err(ExecError::Failed {
            program: program.to_string(),
            status: format!("exit status {}", self.code),
            stderr: text,
        })
    }
}

/// Runs programs to their end.
#[async_trait]
pub trait Exec: Send + Sync + std::fmt::Debug {
    /// Runs a program and waits. Dropping the future kills it.
    async fn run(&self, spec: CommandSpec) -> Result<CommandOutput, ExecError>;
}

/// The real thing.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemExec;

#[async_trait]
impl Exec for SystemExec {
    async fn run(&self, spec: CommandSpec) -> Result<CommandOutput, ExecError> {
        run_bounded(spec, OUTPUT_BYTES_MAX).await
    }
}

/// Runs a program and waits; the first `output_bytes_max` of each stream are kept, and the rest is read and dropped. Dropping the future
/// kills it.
pub async fn run_bounded(spec: CommandSpec, output_bytes_max: usize) -> Result<CommandOutput, ExecError> {
    let failed = |source| ExecError::Run {
        program: spec.program.clone(),
        source,
    };
    let mut child = spawn(&spec)?;
    let feed = feed(&mut child, spec.stdin.clone());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Input and output move at the same time, or a program that fills its output pipe before it
    // has read its input would hang with us.
    let (_, stdout, stderr, status) = tokio::join!(
        feed,
        head(stdout, output_bytes_max),
        head(stderr, output_bytes_max),
        child.wait()
    );
    Ok(CommandOutput {
        code: exit_code(status.map_err(failed)?),
        stdout: stdout.map_err(failed)?,
        stderr: stderr.map_err(failed)?,
    })
}

/// Runs a program and hands on what it prints as it comes, both streams as one; returns its exit code. A receiver that has gone ends
/// it, and so does dropping the future.
pub async fn stream(spec: CommandSpec, out: mpsc::Sender<Vec<u8>>) -> Result<i32, ExecError> {
    let mut child = spawn(&spec)?;
    let feed = feed(&mut child, spec.stdin.clone());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = out.clone();
    let copying = async { tokio::join!(feed, copy(stdout, &out), copy(stderr, &errors)) };
    tokio::select! {
        biased;
        _ = copying => {}
        // `out` is used by the copying future; a second sender of the same channel reports that the receiver is
        // gone.
        () = errors.closed() => {}
    }
    if errors.is_closed() {
        // It may have ended by itself.
        let _ = child.start_kill();
    }
    let status = child.wait().await.map_err(|source| ExecError::Run {
        program: spec.program,
        source,
    })?;
    Ok(exit_code(status))
}

fn spawn(spec: &CommandSpec) -> Result<Child, ExecError> {
    Command::new(&spec.program)
        .args(&spec.args)
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .stdin(if spec.stdin.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| ExecError::Start {
            program: spec.program.clone(),
            source,
        })
}

fn feed(child: &mut Child, input: Vec<u8>) -> impl Future<Output = ()> + Send + use<> {
    let stdin = child.stdin.take();
    async move {
        if let Some(mut stdin) = stdin {
            // A program may end without reading all of its input; its status says more than EPIPE.
            let _ = stdin.write_all(&input).await;
        }
    }
}

/// Reads a stream to its end and keeps its first bytes.
async fn head(from: Option<impl AsyncRead + Unpin>, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return Ok(kept) };
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    (&mut from).take(most).read_to_end(&mut kept).await?;
    // Read to the end, or the program would block on a full pipe and never exit.
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(kept)
}

async fn copy(from: Option<impl AsyncRead + Unpin>, out: &mpsc::Sender<Vec<u8>>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 || out.send(buffer[..count].to_vec()).await.is_err() {
            return;
        }
    }
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A program that outlives us.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables added to our own environment.
    pub env: Vec<(String, String)>,
    /// File to which its output is appended.
    pub log: PathBuf,
    /// File in which it records its identity before it begins.
    pub pid_file: PathBuf,
}

impl Daemon {
    /// Makes the files of its record, so that it starts on a full disk too.
    pub fn reserve(&self) -> std::io::Result<()> {
        OwnRecord::reserve(&self.pid_file)
    }

    /// Starts it in a session of its own, so that no signal to our process group reaches it.
    pub fn start(&self) -> Result<ProcessIdentity, ExecError> {
        let failed = |source| ExecError::Start {
            program: self.program.display().to_string(),
            source,
        };
        let log = open_log(&self.log).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let record = OwnRecord::prepare(&self.pid_file).map_err(failed)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(errors))
            .kill_on_drop(false);
        crate::limits::keep_open_files_as_given(command.as_std_mut());
        // SAFETY: the closure runs between fork and exec and makes system calls; it neither allocates nor takes a lock.
        #[expect(unsafe_code, reason = "setsid and the record belong between fork and exec")]
        unsafe {
            command.pre_exec(move || {
                nix::unistd::setsid()?;
                record.write()
            });
        }
        let child = command.spawn().map_err(failed)?;
        let pid = child
            .id()
            .ok_or_else(|| failed(std::io::Error::other("ended at once")))?;
        ProcessIdentity::of(pid).map_err(failed)
    }
}

/// Finds a program in `PATH`, or in the directories of administrators' programs.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("PATH").unwrap_or_default();
    let usual = [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ]
    .map(PathBuf::from);
    let folders = std::env::split_paths(&given).chain(usual);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Logs name what others need not know.
const LOG_MODE: u32 = 0o640;

fn open_log(path: &Path) -> std::io::Result<std::fs::File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(LOG_MODE)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn exec_program_gets_input_and_returns_output() {
        let spec = CommandSpec::new("cat").stdin("hello");
        let output = SystemExec.run(spec).await.unwrap();
        assert_eq!((output.code, output.stdout.as_slice()), (0, b"hello".as_slice()));
    }

    #[tokio::test]
    async fn exec_failure_carries_standard_error() {
        let spec = CommandSpec::new("sh").args(["-c", "echo no such thing >&2; exit 3"]);
        let error = SystemExec.run(spec).await.unwrap().success("sh").unwrap_err();
        assert_eq!(error.to_string(), "sh failed with exit status 3: no such thing");
    }

    #[tokio::test]
    async fn exec_output_beyond_its_bound_is_read_and_dropped() {
        let script = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; exit 4";
        let spec = CommandSpec::new("sh").args(["-c", script]);
        let output = run_bounded(spec, 1_000).await.unwrap();
        assert_eq!(
            (output.code, output.stdout.len(), output.stderr.len()),
            (4, 1_000, 1_000)
        );
    }

    #[tokio::test]
    async fn exec_stream_hands_on_both_outputs_and_ends_with_its_receiver() {
        let (out, mut pieces) = mpsc::channel::<Vec<u8>>(1);
        let spec = CommandSpec::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]);
        let reading = async {
            let mut all = Vec::new();
            while let Some(piece) = pieces.recv().await {
                all.extend(piece);
            }
            all.sort_unstable();
            all
        };
        let (code, all) = tokio::join!(stream(spec, out), reading);
        assert_eq!((code.unwrap(), all.len()), (3, "out\nerr\n".len()));
        let (out, mut pieces) = mpsc::channel::<Vec<u8>>(1);
        let first = async move { pieces.recv().await.map(|piece| piece.len()) };
        let (code, first) = tokio::join!(stream(CommandSpec::new("yes"), out), first);
        assert!(code.unwrap() > 128 && first > Some(0), "it was killed");
    }

    #[tokio::test]
    async fn exec_missing_program_is_named() {
        let error = SystemExec
            .run(CommandSpec::new("/nonexistent"))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "starting /nonexistent");
    }
}
