//! `/run/`: a command in a container, and what it printed, once it has ended (upstream's `getRun`).

use http::{Response, StatusCode};
use node_cri::v1::ExecSyncResponse;

use super::query::Query;
use super::response::{Body, text, with_type};
use super::streaming::{StreamSlot, Target, running_container};
use crate::managers::ManagerContext;
use crate::runtime_errors::rpc_text;

/// Bytes that are kept of each stream of a command. Upstream's runtime keeps 16 MiB of both.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Runs the command of a query. The runtime has the time of an operation for it, where upstream has none.
pub(super) async fn answer(
    context: &ManagerContext,
    slot: StreamSlot,
    target: Target<'_>,
    query: &Query,
) -> Response<Body> {
    let id = match running_container(context, target).await {
        Ok(id) => id,
        Err(refusal) => return *refusal,
    };
    let command = command(query);
    let cri = &context.workers.control.cri;
    let ended = cri.run_command(&id, command.clone(), OUTPUT_BYTES_MAX).await;
    drop(slot);
    match ended {
        Ok(ended) => printed(ended, &command),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, rpc_text(&error)),
    }
}

/// One parameter with words between single spaces, "for legacy reasons".
fn command(query: &Query) -> Vec<String> {
    let words = query.get("cmd").unwrap_or_default().split(' ');
    words.map(str::to_owned).collect()
}

/// Output of a command, standard output first, under upstream's content type; or the error of one that failed.
fn printed(ended: ExecSyncResponse, command: &[String]) -> Response<Body> {
    if ended.exit_code != 0 {
        let message = format!(
            "command '{}' exited with {}: {}",
            command.join(" "),
            ended.exit_code,
            String::from_utf8_lossy(&ended.stderr)
        );
        return text(StatusCode::INTERNAL_SERVER_ERROR, message);
    }
    let all = [ended.stdout, ended.stderr].concat();
    with_type(StatusCode::OK, "application/json", all.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    async fn check(exit_code: i32, status: StatusCode, expected: &str) {
        let ended = ExecSyncResponse {
            stdout: b"out\n".to_vec(),
            stderr: b"err\n".to_vec(),
            exit_code,
        };
        let answer = printed(ended, &["sh".to_owned(), "-c".to_owned()]);
        assert_eq!(answer.status(), status);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, expected);
    }

    #[tokio::test]
    async fn run_answers_with_output_or_with_the_error_of_a_command_that_failed() {
        check(0, StatusCode::OK, "out\nerr\n").await;
        let failed = "command 'sh -c' exited with 3: err\n";
        check(3, StatusCode::INTERNAL_SERVER_ERROR, failed).await;
    }

    #[test]
    fn run_splits_its_command_at_each_space() {
        let words = |query: &str| command(&Query::parse(query));
        assert_eq!(words("cmd=ls%20-l+/"), ["ls", "-l", "/"]);
        assert_eq!(words("cmd=a++b"), ["a", "", "b"]);
        assert_eq!(words(""), [""]);
    }
}
