//! Starting other programs and waiting for them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A command to be filled in. The one place where xtask makes one.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask stands outside the product and cannot use node_sys"
)]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// cargo, as the user's shell would start it in `directory`.
///
/// `cargo xtask` is itself run by cargo, which passes it the package xtask. A cargo below that passes this on to build
/// scripts, and one that looks at it (ring's) then builds itself and everything above it anew.
pub fn cargo(directory: &std::path::Path) -> Command {
    let mut command = command("cargo");
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(directory);
    command
}

/// Runs to the end, output passed through; a failure names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {}", describe(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", describe(command));
    }
    Ok(())
}

/// Runs to the end, output passed through. Programs below it are killed whenever it writes no line for so long, so that one
/// that hangs ends itself alone; the run is a failure then.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "xtask stands outside the product: it has no Runtime, and passes output through"
)]
pub fn run_watched(command: &mut Command, silence: Duration) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", describe(command)))?;
    let (written, lines) = channel();
    let stdout = child.stdout.take().context("no stdout")?;
    let stderr = child.stderr.take().context("no stderr")?;
    let errors = written.clone();
    std::thread::spawn(move || copy_lines(stdout, &written, |line| print!("{line}")));
    std::thread::spawn(move || copy_lines(stderr, &errors, |line| eprint!("{line}")));
    let hung = end_those_that_hang(&mut child, &lines, silence)?;
    let status = child.wait()?;
    if hung > 0 {
        bail!(
            "{}: {hung} programs wrote nothing for {} s and were killed; the last line before each names the test",
            describe(command),
            silence.as_secs()
        );
    }
    if !status.success() {
        bail!("{} failed: {status}", describe(command));
    }
    Ok(())
}

/// Writes each line on and reports it.
fn copy_lines(from: impl Read, written: &Sender<()>, write: impl Fn(&str)) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        write(&String::from_utf8_lossy(&line));
        line.clear();
        let _ = written.send(());
    }
}

/// Waits until both outputs are closed, or silent after the end; returns the number of programs killed meanwhile.
fn end_those_that_hang(child: &mut Child, lines: &Receiver<()>, silence: Duration) -> Result<usize> {
    let mut killed = 0;
    loop {
        match lines.recv_timeout(silence) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(killed),
            // A killed test's own programs may hold the output open.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => return Ok(killed),
            Err(RecvTimeoutError::Timeout) => {
                for pid in children_of(child.id())? {
                    run(command("kill").args(["-KILL", &pid.to_string()]))?;
                    killed += 1;
                }
            }
        }
    }
}

/// Processes started by this one that still run (proc_pid_stat(5)).
fn children_of(parent: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name may hold spaces and parentheses; its end is the last of them.
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' '));
        if fields.and_then(|mut fields| fields.nth(1)?.parse().ok()) == Some(parent) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// Runs to the end and returns what it wrote to stdout.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("starting {}", describe(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", describe(command), output.status);
    }
    String::from_utf8(output.stdout).context("output is not UTF-8")
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = command("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_program_that_hangs_ends_alone_and_is_a_failure() {
        let went_on = std::env::temp_dir().join(format!("knarr-went-on.{}", std::process::id()));
        let script = format!("sleep 1000000; : > {}", went_on.display());
        let error = run_watched(&mut shell(&script), Duration::from_millis(300)).expect_err("hung");
        assert!(error.to_string().contains("1 programs wrote nothing"), "{error}");
        std::fs::remove_file(went_on).expect("what comes after it ran");
    }

    #[test]
    fn a_program_that_writes_is_let_run() {
        let script = "for i in 1 2 3; do echo $i; done";
        run_watched(&mut shell(script), Duration::from_secs(3600)).expect("success");
        let failed = run_watched(&mut shell("exit 3"), Duration::from_secs(3600)).expect_err("failure");
        assert!(failed.to_string().contains("exit status: 3"), "{failed}");
    }
}
