//! Asking one probe once.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerPort, Probe};
use machinery_meta::dial::dial_error;
use machinery_runtime::Runtime;
use node_cri::CriClient;
use tokio::net::TcpStream;

use super::http::{HttpRequest, get};
use super::{grpc, port_number};
use crate::pods::plan::go_duration;

/// Upstream keeps this much of what a command prints.
const OUTPUT_BYTES_MAX: usize = 10 << 10;

/// Container that a probe checks.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The container's id.
    pub(crate) id: String,
    /// Its ports, which probes may name.
    pub(crate) ports: Vec<ContainerPort>,
    /// The pod's address.
    pub(crate) pod_ip: String,
}

/// Executes a probe: success, perhaps with a warning, or the message of the failure.
pub(crate) async fn execute(
    runtime: &Runtime,
    cri: &CriClient,
    probe: &Probe,
    target: &Target,
) -> Result<Option<String>, String> {
    let seconds = u64::try_from(probe.timeout_seconds.unwrap_or(1))
        .unwrap_or(1)
        .max(1);
    let timeout = Duration::from_secs(seconds);
    if let Some(exec) = &probe.exec {
        let command = exec.command.clone().unwrap_or_default();
        return execute_command(cri, command, timeout, target)
            .await
            .map(|()| None);
    }
    let outcome = runtime
        .timeout(timeout, execute_network(probe, target, timeout))
        .await;
    outcome.unwrap_or_else(|_| Err(timeout_text(probe, target, timeout)))
}

fn timeout_text(probe: &Probe, target: &Target, timeout: Duration) -> String {
    match http_request(probe, target) {
        Some(Ok(request)) => format!(
            "Get \"{}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            request.url()
        ),
        _ if probe.grpc.is_some() => {
            format!(
                "timeout: health rpc did not complete within {}",
                go_duration(timeout)
            )
        }
        _ => {
            let (host, port) = tcp_address(probe, target).unwrap_or_default();
            dial_error(&host, port, &std::io::ErrorKind::TimedOut.into())
        }
    }
}

async fn execute_command(
    cri: &CriClient,
    command: Vec<String>,
    timeout: Duration,
    target: &Target,
) -> Result<(), String> {
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(1);
    match cri.exec_sync(&target.id, command, seconds).await {
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

async fn execute_network(
    probe: &Probe,
    target: &Target,
    timeout: Duration,
) -> Result<Option<String>, String> {
    if let Some(request) = http_request(probe, target) {
        let answer = get(request?).await?;
        return match answer.status {
            200..300 => Ok(None),
            300..400 => Ok(Some(format!(
                "Probe terminated redirects, Response body: {}",
                answer.body
            ))),
            status => Err(format!("HTTP probe failed with statuscode: {status}")),
        };
    }
    if probe.tcp_socket.is_some() {
        let (host, port) = tcp_address(probe, target).ok_or("the probe's port is not known")?;
        let connected = TcpStream::connect((host.as_str(), port)).await;
        return connected
            .map(|_| None)
            .map_err(|error| dial_error(&host, port, &error));
    }
    if let Some(action) = &probe.grpc {
        let port = u16::try_from(action.port).map_err(|_| "the probe's port is not known")?;
        return grpc::check(
            &target.pod_ip,
            port,
            action.service.as_deref().unwrap_or_default(),
            timeout,
        )
        .await
        .map(|()| None);
    }
    Err("missing probe handler".into())
}

/// Host and port of a TCP probe.
fn tcp_address(probe: &Probe, target: &Target) -> Option<(String, u16)> {
    let action = probe.tcp_socket.as_ref()?;
    let host = action.host.clone().filter(|host| !host.is_empty());
    let port = port_number(&action.port, &target.ports)?;
    Some((host.unwrap_or_else(|| target.pod_ip.clone()), port))
}

fn http_request(probe: &Probe, target: &Target) -> Option<Result<HttpRequest, String>> {
    let action = probe.http_get.as_ref()?;
    let host = action
        .host
        .clone()
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| target.pod_ip.clone());
    let Some(port) = port_number(&action.port, &target.ports) else {
        return Some(Err("the probe's port is not known".into()));
    };
    let headers = action.http_headers.iter().flatten();
    Some(Ok(HttpRequest {
        tls: action.scheme.as_deref() == Some("HTTPS"),
        host,
        port,
        path: action
            .path
            .clone()
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| "/".into()),
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
        user_agent: "kube-probe/1.37".into(),
    }))
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
