//! The server under load as a process: started, waited for, killed.

use super::connection::Target;
use super::load::now;
use super::process::Processes;
use super::scenarios::pause;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Method;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running API server that was started here.
#[derive(Debug)]
pub struct Server {
    command: Vec<String>,
    kubeconfig: PathBuf,
    child: Child,
}

/// A server that is not ready by then is broken.
const READY_LIMIT: Duration = Duration::from_secs(60);

impl Server {
    /// Starts the command and waits until `/readyz` says ok; the time from exec to then comes back too.
    ///
    /// # Errors
    /// The command cannot be started, ends, or is not ready in a minute.
    pub async fn start(command: Vec<String>, kubeconfig: PathBuf) -> Result<(Self, Target, Duration)> {
        let begun = now();
        let child = spawn(&command)?;
        let mut server = Self {
            command,
            kubeconfig,
            child,
        };
        let target = server.wait().await?;
        Ok((server, target, begun.elapsed()))
    }

    /// Kills the server without a warning and starts it again on the same data.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn kill_and_restart(&mut self) -> Result<(Target, Duration)> {
        self.kill()?;
        let begun = now();
        self.child = spawn(&self.command)?;
        let target = self.wait().await?;
        Ok((target, begun.elapsed()))
    }

    /// Kills the server without a warning.
    ///
    /// # Errors
    /// It is not to be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn processes(&self) -> Processes {
        Processes(vec![self.child.id()])
    }

    async fn wait(&mut self) -> Result<Target> {
        let begun = now();
        while begun.elapsed() < READY_LIMIT {
            if let Some(target) = self.ready().await {
                return Ok(target);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended: {status}");
            }
            pause(Duration::from_millis(2)).await;
        }
        bail!("the server is not ready after {READY_LIMIT:?}")
    }

    async fn ready(&self) -> Option<Target> {
        let target = Target::from_kubeconfig(&self.kubeconfig).ok()?;
        let mut client = target.connect().await.ok()?;
        client
            .call(Method::GET, "/readyz", &[], Bytes::new())
            .await
            .ok()?;
        Some(target)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a load generator stands outside the product"
)]
fn spawn(command: &[String]) -> Result<Child> {
    let (program, arguments) = command.split_first().context("no server command")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().with_context(|| format!("starting {program}"))
}
