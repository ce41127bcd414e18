//! A process beside a container's own, through containerd's task service.
//!
//! CRI's streaming server of containerd cannot half-close input and refuses the newest protocol of
//! kubectl; here input, output and errors are named pipes of ours, so every transport can be served.

use std::path::{Path, PathBuf};

use crate::client::Transport;
use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::tasks_client::TasksClient;
use containerd_client::services::v1::{
    CloseIoRequest, DeleteProcessRequest, ExecProcessRequest, GetContainerRequest, KillRequest,
    ResizePtyRequest, StartRequest, WaitRequest,
};
use futures::future::BoxFuture;
use prost_types::Any;
use tokio::net::unix::pipe;

use crate::{CriClient, CriError, in_namespace};

const PROCESS_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
const SIGKILL: u32 = 9;

/// Command to run, and streams to connect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessOptions {
    /// The container.
    pub container_id: String,
    /// A name for the process that no other of this container has.
    pub process_id: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Gives it a terminal; then errors arrive on its output.
    pub tty: bool,
    /// Connects its input.
    pub stdin: bool,
    /// A folder for the pipes; made here, removed when the process is dropped.
    pub pipes: PathBuf,
}

/// A running process and our ends of its pipes.
#[derive(Debug)]
pub struct Process {
    /// Its input, when requested. Dropping it is not enough to end the input: see [`ProcessControl::close_stdin`].
    pub stdin: Option<pipe::Sender>,
    /// Its output; ends when every holder of it has gone.
    pub stdout: pipe::Receiver,
    /// Its errors; none with a terminal.
    pub stderr: Option<pipe::Receiver>,
    /// Control of the process.
    pub control: ProcessControl,
    folder: PipeFolder,
}

/// The running process, without its streams.
#[derive(Debug, Clone)]
pub struct ProcessControl {
    tasks: TasksClient<Transport>,
    container_id: String,
    process_id: String,
}

/// Our pipes' folder, gone when dropped.
#[derive(Debug)]
pub struct PipeFolder(PathBuf);

impl Drop for PipeFolder {
    fn drop(&mut self) {
        // Best effort: the folder lies in a run directory that a reboot empties.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Process {
    /// Takes it apart. The folder must be kept until the streams are done with.
    pub fn into_parts(
        self,
    ) -> (
        Option<pipe::Sender>,
        pipe::Receiver,
        Option<pipe::Receiver>,
        ProcessControl,
        PipeFolder,
    ) {
        (self.stdin, self.stdout, self.stderr, self.control, self.folder)
    }
}

/// Starts a process in a running container.
pub fn start(client: &CriClient, options: ProcessOptions) -> BoxFuture<'static, Result<Process, CriError>> {
    let channel = client.channel();
    Box::pin(async move { start_process(channel, options).await })
}

async fn start_process(channel: Transport, options: ProcessOptions) -> Result<Process, CriError> {
    let spec = process_spec(channel.clone(), &options).await?;
    let folder = make_folder(&options.pipes)?;
    // Our ends are open before the process starts, or it would find no reader and block or lose
    // output. The input is opened for both directions, because a writer alone needs a reader first.
    let stdout = receiver(&options.pipes, "stdout")?;
    let stderr = if options.tty {
        None
    } else {
        Some(receiver(&options.pipes, "stderr")?)
    };
    let stdin = if options.stdin {
        Some(sender(&options.pipes, "stdin")?)
    } else {
        None
    };
    let path = |name: &str| options.pipes.join(name).display().to_string();
    let mut tasks = TasksClient::new(channel);
    let request = ExecProcessRequest {
        container_id: options.container_id.clone(),
        exec_id: options.process_id.clone(),
        stdin: if options.stdin {
            path("stdin")
        } else {
            String::new()
        },
        stdout: path("stdout"),
        stderr: if options.tty {
            String::new()
        } else {
            path("stderr")
        },
        terminal: options.tty,
        spec: Some(spec),
    };
    tasks
        .exec(in_namespace(request))
        .await
        .map_err(CriError::call("adding a process to a container"))?;
    let control = ProcessControl {
        tasks,
        container_id: options.container_id,
        process_id: options.process_id,
    };
    if let Err(error) = control.start().await {
        control.delete().await;
        return Err(error);
    }
    Ok(Process {
        stdin,
        stdout,
        stderr,
        control,
        folder,
    })
}

impl ProcessControl {
    async fn start(&self) -> Result<(), CriError> {
        let request = StartRequest {
            container_id: self.container_id.clone(),
            exec_id: self.process_id.clone(),
        };
        let answer = self.tasks.clone().start(in_namespace(request)).await;
        answer
            .map(drop)
            .map_err(CriError::call("starting a process in a container"))
    }

    /// Waits until it has ended and returns its exit code.
    pub fn wait(&self) -> BoxFuture<'static, Result<i32, CriError>> {
        let request = WaitRequest {
            container_id: self.container_id.clone(),
            exec_id: self.process_id.clone(),
        };
        let mut tasks = self.tasks.clone();
        Box::pin(async move {
            let answer = tasks.wait(in_namespace(request)).await;
            let status = answer
                .map_err(CriError::call("waiting for a process"))?
                .into_inner()
                .exit_status;
            Ok(i32::try_from(status).unwrap_or(255))
        })
    }

    /// Ends its input: what was written stays readable, then comes the end of file.
    pub fn close_stdin(&self) -> BoxFuture<'static, Result<(), CriError>> {
        let request = CloseIoRequest {
            container_id: self.container_id.clone(),
            exec_id: self.process_id.clone(),
            stdin: true,
        };
        let mut tasks = self.tasks.clone();
        Box::pin(async move {
            tasks
                .close_io(in_namespace(request))
                .await
                .map(drop)
                .map_err(CriError::call("closing a process's input"))
        })
    }

    /// Sets the size of its terminal.
    pub fn resize(&self, width: u32, height: u32) -> BoxFuture<'static, Result<(), CriError>> {
        let request = ResizePtyRequest {
            container_id: self.container_id.clone(),
            exec_id: self.process_id.clone(),
            width,
            height,
        };
        let mut tasks = self.tasks.clone();
        Box::pin(async move {
            tasks
                .resize_pty(in_namespace(request))
                .await
                .map(drop)
                .map_err(CriError::call("resizing a terminal"))
        })
    }

    /// Kills it. One that has ended already is fine.
    pub fn kill(&self) -> BoxFuture<'static, ()> {
        let request = KillRequest {
            container_id: self.container_id.clone(),
            exec_id: self.process_id.clone(),
            signal: SIGKILL,
            all: false,
        };
        let mut tasks = self.tasks.clone();
        Box::pin(async move {
            let _ = tasks.kill(in_namespace(request)).await;
        })
    }

    /// Makes containerd forget it, after its end.
    pub fn delete(&self) -> BoxFuture<'static, ()> {
        let request = DeleteProcessRequest {
            container_id: self.container_id.clone(),
            exec_id: self.process_id.clone(),
        };
        let mut tasks = self.tasks.clone();
        Box::pin(async move {
            let _ = tasks.delete_process(in_namespace(request)).await;
        })
    }
}

/// The container's own process description with another command: same user, rights and environment.
async fn process_spec(channel: Transport, options: &ProcessOptions) -> Result<Any, CriError> {
    const ACTION: &str = "reading a container's description";
    let request = in_namespace(GetContainerRequest {
        id: options.container_id.clone(),
    });
    let answer = ContainersClient::new(channel)
        .get(request)
        .await
        .map_err(CriError::call(ACTION))?;
    let spec = answer.into_inner().container.and_then(|container| container.spec);
    let bytes = spec
        .ok_or_else(|| CriError::invalid(ACTION, "it has none"))?
        .value;
    let value = exec_spec(&bytes, options).map_err(|error| CriError::invalid(ACTION, error))?;
    Ok(Any {
        type_url: PROCESS_TYPE.to_string(),
        value,
    })
}

fn exec_spec(container_spec: &[u8], options: &ProcessOptions) -> Result<Vec<u8>, serde_json::Error> {
    let mut spec: serde_json::Value = serde_json::from_slice(container_spec)?;
    let mut process = spec["process"].take();
    process["args"] = options.command.clone().into();
    process["terminal"] = options.tty.into();
    if options.tty
        && let Some(env) = process["env"].as_array_mut()
        && !env
            .iter()
            .any(|entry| entry.as_str().is_some_and(|text| text.starts_with("TERM=")))
    {
        env.push("TERM=xterm".into());
    }
    serde_json::to_vec(&process)
}

fn make_folder(path: &Path) -> Result<PipeFolder, CriError> {
    std::fs::create_dir_all(path).map_err(CriError::io("making a folder for pipes"))?;
    Ok(PipeFolder(path.to_path_buf()))
}

fn make_pipe(folder: &Path, name: &str) -> Result<PathBuf, CriError> {
    let path = folder.join(name);
    let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
    nix::unistd::mkfifo(&path, mode).map_err(|errno| CriError::io("making a pipe")(errno.into()))?;
    Ok(path)
}

fn receiver(folder: &Path, name: &str) -> Result<pipe::Receiver, CriError> {
    let path = make_pipe(folder, name)?;
    pipe::OpenOptions::new()
        .open_receiver(path)
        .map_err(CriError::io("opening a pipe"))
}

fn sender(folder: &Path, name: &str) -> Result<pipe::Sender, CriError> {
    let path = make_pipe(folder, name)?;
    pipe::OpenOptions::new()
        .read_write(true)
        .open_sender(path)
        .map_err(CriError::io("opening a pipe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_process_changes_command_only() {
        let container = br#"{"process":{"args":["a"],"cwd":"/w","env":["X=1"],"user":{"uid":7}}}"#;
        let options = ProcessOptions {
            command: vec!["sh".into()],
            tty: true,
            ..ProcessOptions::default()
        };
        let process: serde_json::Value =
            serde_json::from_slice(&exec_spec(container, &options).unwrap()).unwrap();
        assert_eq!(process["args"][0], "sh");
        assert_eq!(process["env"][1], "TERM=xterm");
        assert_eq!(process["user"]["uid"], 7);
        assert_eq!(process["cwd"], "/w");
    }
}
