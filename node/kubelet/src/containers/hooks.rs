//! postStart and preStop.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Pod};
use machinery_runtime::Runtime;
use node_cri::CriClient;

use crate::pods::full_name_with_uid;
use crate::probes::http::{HttpRequest, get};
use crate::probes::port_number;

/// The reason that a container waits for when its postStart hook has failed.
pub(crate) const POST_START_ERROR: &str = "PostStartHookError";
/// Bytes of a failed command's output that its message holds.
const OUTPUT_BYTES_MAX: usize = 4096;

/// Runs a hook of a pod's container; an error says in upstream's words what failed.
pub(crate) async fn run(
    runtime: &Runtime,
    cri: &CriClient,
    handler: &LifecycleHandler,
    (pod, container): (&Pod, &Container),
    id: &str,
    pod_ip: Option<&str>,
    timeout: Duration,
) -> Result<(), String> {
    let whose = format!(
        "for Container {:?} in Pod {:?} failed - error",
        container.name,
        full_name_with_uid(pod)
    );
    if let Some(exec) = &handler.exec {
        let command = exec.command.clone().unwrap_or_default();
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX).max(1);
        let failed = |error: &str, output: &[u8]| exec_failure(&command, &whose, error, output);
        let answer = cri
            .exec_sync(id, command.clone(), seconds)
            .await
            .map_err(|error| failed(&error.message(), b""))?;
        if answer.exit_code == 0 {
            return Ok(());
        }
        let error = exit_failure(&command, answer.exit_code, &answer.stderr);
        return Err(failed(&error, &[answer.stdout, answer.stderr].concat()));
    }
    if let Some(action) = &handler.http_get {
        let path = action.path.as_deref().unwrap_or("/");
        return send_request(runtime, action, container, pod_ip, timeout)
            .await
            .map_err(|error| format!("HTTP lifecycle hook ({path}) {whose}: {error}"));
    }
    if let Some(sleep) = &handler.sleep {
        let wanted = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
        runtime.sleep(wanted.min(timeout)).await;
    }
    Ok(())
}

fn exec_failure(command: &[String], whose: &str, error: &str, output: &[u8]) -> String {
    let shown = command.join(" ");
    let output = head(output);
    format!("Exec lifecycle hook ([{shown}]) {whose}: {error}, message: {output:?}")
}

fn exit_failure(command: &[String], code: i32, stderr: &[u8]) -> String {
    format!(
        "command '{}' exited with {code}: {}",
        command.join(" "),
        head(stderr)
    )
}

fn head(output: &[u8]) -> String {
    String::from_utf8_lossy(&output[..output.len().min(OUTPUT_BYTES_MAX)]).into_owned()
}

/// Sends the request of an HTTP hook. Any answer is a success, as upstream.
async fn send_request(
    runtime: &Runtime,
    action: &HTTPGetAction,
    container: &Container,
    pod_ip: Option<&str>,
    timeout: Duration,
) -> Result<(), String> {
    let own = action.host.as_deref().filter(|host| !host.is_empty());
    let host = own.or(pod_ip).ok_or("failed to find networking container")?;
    let headers = action.http_headers.iter().flatten();
    let request = HttpRequest {
        tls: action.scheme.as_deref() == Some("HTTPS"),
        host: host.to_string(),
        port: port_number(&action.port, container.ports.as_deref().unwrap_or_default())
            .ok_or("the hook's port is not known")?,
        path: action.path.clone().unwrap_or_else(|| "/".into()),
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
        user_agent: "kube-lifecycle/1.37".into(),
    };
    let answer = runtime.timeout(timeout, get(request)).await;
    answer.map_err(|_| "the hook timed out")?.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_failure_message_matches_upstream() {
        let command = ["sh", "-c", "exit 3"].map(String::from);
        let whose = r#"for Container "c" in Pod "badpost_f(u)" failed - error"#;
        let told = |stderr: &[u8]| {
            let error = exit_failure(&command, 3, stderr);
            exec_failure(&command, whose, &error, stderr)
        };
        assert_eq!(
            told(b""),
            r#"Exec lifecycle hook ([sh -c exit 3]) for Container "c" in Pod "badpost_f(u)" failed - error: command 'sh -c exit 3' exited with 3: , message: """#
        );
        let long = told(&[b'o'; 3 * OUTPUT_BYTES_MAX]);
        assert!(long.len() < 3 * OUTPUT_BYTES_MAX, "told twice, each cut");
    }
}
