//! Calls of one plugin, over its unix socket: each ends within the timeout, and what a plugin sends is bounded.

use super::api::{
    DECRYPT, DecryptRequest, DecryptResponse, ENCRYPT, EncryptRequest, EncryptResponse, STATUS,
    StatusRequest, StatusResponse,
};
use super::measures::KmsMeasures;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use prost::Message;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// A larger answer is refused; an encrypted key with its annotations is far smaller.
const ANSWER_BYTES_MAX: usize = 128 << 10;
/// Bytes of a plugin's own words that are passed on.
const WORDS_BYTES_MAX: usize = 1 << 10;
/// Pause between attempts to connect, within the time of a call.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Service {
    name: String,
    socket: PathBuf,
    timeout: Duration,
    runtime: Runtime,
    measures: Arc<KmsMeasures>,
    channel: Mutex<Option<Channel>>,
}

impl Service {
    pub(super) fn new(
        (name, socket, timeout): (&str, PathBuf, Duration),
        runtime: Runtime,
        measures: Arc<KmsMeasures>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            socket,
            timeout,
            runtime,
            measures,
            channel: Mutex::default(),
        }
    }

    pub(super) async fn status(&self) -> Result<StatusResponse, Status> {
        self.call(STATUS, StatusRequest {}).await
    }

    pub(super) async fn encrypt(&self, request: EncryptRequest) -> Result<EncryptResponse, Status> {
        self.call(ENCRYPT, request).await
    }

    pub(super) async fn decrypt(&self, request: DecryptRequest) -> Result<DecryptResponse, Status> {
        self.call(DECRYPT, request).await
    }

    async fn call<Sent, Answer>(&self, path: &'static str, request: Sent) -> Result<Answer, Status>
    where
        Sent: Message + 'static,
        Answer: Message + Default + 'static,
    {
        let begun = self.runtime.monotonic();
        let answer = self.runtime.timeout(self.timeout, self.send(path, request)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
        let took = self.runtime.monotonic().saturating_sub(begun);
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        if matches!(code, Code::Unavailable | Code::DeadlineExceeded) {
            *self.channel.lock().await = None;
        }
        self.measures.called(&self.name, path, &code_name(code), took);
        answer
    }

    async fn send<Sent, Answer>(&self, path: &'static str, request: Sent) -> Result<Answer, Status>
    where
        Sent: Message + 'static,
        Answer: Message + Default + 'static,
    {
        let channel = self.connected().await;
        let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let ready = client.ready().await;
        ready.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<Sent, Answer>::default();
        let answer = client
            .unary(Request::new(request), PathAndQuery::from_static(path), codec)
            .await?;
        Ok(answer.into_inner())
    }

    /// The connection, which is made as soon as the plugin listens: it may start beside the server.
    async fn connected(&self) -> Channel {
        loop {
            if let Some(channel) = self.channel.lock().await.clone() {
                return channel;
            }
            match self.connect().await {
                Ok(channel) => *self.channel.lock().await = Some(channel),
                Err(error) => {
                    tracing::debug!(provider = self.name, %error, "no connection to the KMS plugin");
                    self.runtime.sleep(CONNECT_PAUSE).await;
                }
            }
        }
    }

    async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        let socket = self.socket.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
        });
        // As upstream's: servers in Go refuse a socket's path for an authority.
        let endpoint = Endpoint::from_static("http://localhost");
        endpoint.connect_with_connector(connector).await
    }
}

/// A failed call as upstream prints it.
pub(super) fn rpc_text(status: &Status) -> String {
    let words = status.message();
    let most = words.floor_char_boundary(WORDS_BYTES_MAX);
    format!(
        "rpc error: code = {} desc = {}",
        code_name(status.code()),
        &words[..most]
    )
}

/// A code as Go spells it.
fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}
