//! postStart and preStop.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use machinery_runtime::Runtime;
use node_cri::CriClient;

use crate::probes::http::{HttpRequest, get};
use crate::probes::port_number;

/// Runs a hook; an error says what it said.
pub async fn run(
    runtime: &Runtime,
    cri: &CriClient,
    handler: &LifecycleHandler,
    container: &Container,
    id: &str,
    pod_ip: Option<&str>,
    timeout: Duration,
) -> Result<(), String> {
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX).max(1);
    if let Some(exec) = &handler.exec {
        let command = exec.command.clone().unwrap_or_default();
        let answer = cri
            .exec_sync(id, command, seconds)
            .await
            .map_err(|error| error.message())?;
        if answer.exit_code == 0 {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned();
        return Err(format!("command exited with {}: {output}", answer.exit_code));
    }
    if let Some(action) = &handler.http_get {
        let host = action
            .host
            .clone()
            .filter(|host| !host.is_empty())
            .or_else(|| pod_ip.map(str::to_string));
        let port = port_number(&action.port, container).ok_or("the hook's port is not known")?;
        let request = HttpRequest {
            tls: action.scheme.as_deref() == Some("HTTPS"),
            host: host.ok_or("failed to find networking container")?,
            port,
            path: action.path.clone().unwrap_or_else(|| "/".into()),
            headers: action
                .http_headers
                .iter()
                .flatten()
                .map(|header| (header.name.clone(), header.value.clone()))
                .collect(),
            user_agent: "kube-lifecycle/1.37".into(),
        };
        let answer = runtime
            .timeout(timeout, get(request))
            .await
            .map_err(|_| "the hook timed out")?;
        return match answer {
            Ok(answer) if answer.status >= 400 => {
                Err(format!("HTTP request failed with status {}", answer.status))
            }
            other => other.map(drop),
        };
    }
    if let Some(sleep) = &handler.sleep {
        let wanted = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
        runtime.sleep(wanted.min(timeout)).await;
    }
    Ok(())
}
