//! The handlers of probes: the ways in which a probe checks its container. A new one is a file and a variant of [`Handler`].

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerPort, HTTPGetAction, Probe, TCPSocketAction};
use machinery_meta::dial::dial_error;
use machinery_meta::go_duration;
use machinery_runtime::Runtime;
use node_cri::CriClient;
use tokio::net::TcpStream;

use super::http::{HttpRequest, get};
use super::{command, grpc, port_number};

const NO_PORT: &str = "the probe's port is not known";

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

/// Handler of a probe, with all that it needs.
enum Handler<'a> {
    /// `exec`.
    Command(&'a [String]),
    /// `httpGet`.
    Http(HttpRequest),
    /// `tcpSocket`: host and port.
    Tcp(String, u16),
    /// `grpc`: port and service.
    Grpc(u16, &'a str),
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
    let handler = Handler::of(probe, target)?;
    let checking = handler.check(cri, target, timeout);
    let Some(timed_out) = handler.timed_out(timeout) else {
        return checking.await;
    };
    let outcome = runtime.timeout(timeout, checking).await;
    outcome.unwrap_or(Err(timed_out))
}

impl<'a> Handler<'a> {
    /// The handler that a probe has.
    ///
    /// # Errors
    /// It has none that this node knows, or a port that the container does not have.
    fn of(probe: &'a Probe, target: &Target) -> Result<Self, String> {
        if let Some(exec) = &probe.exec {
            return Ok(Self::Command(exec.command.as_deref().unwrap_or_default()));
        }
        if let Some(action) = &probe.http_get {
            return http_request(action, target).map(Self::Http);
        }
        if let Some(action) = &probe.tcp_socket {
            let (host, port) = tcp_address(action, target)?;
            return Ok(Self::Tcp(host, port));
        }
        if let Some(action) = &probe.grpc {
            let port = u16::try_from(action.port).map_err(|_| NO_PORT)?;
            return Ok(Self::Grpc(port, action.service.as_deref().unwrap_or_default()));
        }
        Err("missing probe handler".into())
    }

    async fn check(
        &self,
        cri: &CriClient,
        target: &Target,
        timeout: Duration,
    ) -> Result<Option<String>, String> {
        match self {
            Self::Command(arguments) => {
                let checked = command::check(cri, &target.id, arguments, timeout).await;
                checked.map(|()| None)
            }
            Self::Http(request) => http(request.clone()).await,
            Self::Tcp(host, port) => {
                let connected = TcpStream::connect((host.as_str(), *port)).await;
                connected
                    .map(|_| None)
                    .map_err(|error| dial_error(host, *port, &error))
            }
            Self::Grpc(port, service) => {
                let checked = grpc::check(&target.pod_ip, *port, service, timeout).await;
                checked.map(|()| None)
            }
        }
    }

    /// The message of a probe whose time is up; `None` where another bounds its time.
    fn timed_out(&self, timeout: Duration) -> Option<String> {
        Some(match self {
            // The container runtime does.
            Self::Command(_) => return None,
            Self::Http(request) => format!(
                "Get \"{}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                request.url()
            ),
            Self::Tcp(host, port) => dial_error(host, *port, &std::io::ErrorKind::TimedOut.into()),
            Self::Grpc(..) => {
                let within = go_duration::write(timeout);
                format!("timeout: health rpc did not complete within {within}")
            }
        })
    }
}

async fn http(request: HttpRequest) -> Result<Option<String>, String> {
    let answer = get(request).await?;
    match answer.status {
        200..300 => Ok(None),
        300..400 => Ok(Some(format!(
            "Probe terminated redirects, Response body: {}",
            answer.body
        ))),
        status => Err(format!("HTTP probe failed with statuscode: {status}")),
    }
}

fn http_request(action: &HTTPGetAction, target: &Target) -> Result<HttpRequest, String> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let headers = action.http_headers.iter().flatten();
    Ok(HttpRequest {
        tls: action.scheme.as_deref() == Some("HTTPS"),
        host: given(&action.host).unwrap_or_else(|| target.pod_ip.clone()),
        port: port_number(&action.port, &target.ports).ok_or(NO_PORT)?,
        path: given(&action.path).unwrap_or_else(|| "/".into()),
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
        user_agent: "kube-probe/1.37".into(),
    })
}

fn tcp_address(action: &TCPSocketAction, target: &Target) -> Result<(String, u16), String> {
    let host = action.host.clone().filter(|host| !host.is_empty());
    let port = port_number(&action.port, &target.ports).ok_or(NO_PORT)?;
    Ok((host.unwrap_or_else(|| target.pod_ip.clone()), port))
}
