//! Handler `exec`: a command in the container.

use std::time::Duration;

use node_cri::CriClient;

/// Upstream keeps this much of what a command prints.
const OUTPUT_BYTES_MAX: usize = 10 << 10;

/// Runs a command in a container; the runtime ends it when its time is up.
pub(super) async fn check(
    cri: &CriClient,
    container_id: &str,
    command: &[String],
    timeout: Duration,
) -> Result<(), String> {
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(1);
    match cri.exec_sync(container_id, command.to_vec(), seconds).await {
        Ok(answer) if answer.exit_code == 0 => Ok(()),
        Ok(answer) => Err(output(&answer.stdout, &answer.stderr)),
        Err(error) if error.is_timeout() => Err(format!("command timed out: {}", error.message())),
        Err(error) => Err(format!("command error: {}", error.message())),
    }
}

/// First bytes of the output of a command.
fn output(stdout: &[u8], stderr: &[u8]) -> String {
    let both = stdout.iter().chain(stderr).take(OUTPUT_BYTES_MAX);
    let kept: Vec<u8> = both.copied().collect();
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_output_is_cut_where_upstream_cuts_it() {
        assert_eq!(output(b"out ", b"and err"), "out and err");
        let megabytes = vec![b'x'; 16 << 20];
        assert_eq!(output(&megabytes, &megabytes).len(), OUTPUT_BYTES_MAX);
        assert_eq!(
            output(&megabytes[..OUTPUT_BYTES_MAX - 1], b"yz").chars().last(),
            Some('y')
        );
    }
}
