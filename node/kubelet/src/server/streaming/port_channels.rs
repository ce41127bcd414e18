//! port-forward over a WebSocket's channels, two to a port, for clients that do not carry SPDY in it (kube-rs, Python).
//!
//! The data of the n-th port of the query is channel 2n, its errors are channel 2n+1; the first message of each from here
//! is the port, as two bytes little-endian (upstream's `portforward/websocket.go`). All ports are connected to at once.

use bytes::Bytes;
use futures::stream::SplitStream;
use futures::{SinkExt, StreamExt};
use machinery_runtime::Runtime;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;

use super::super::query::Query;
use super::channels::PIECES_MAX;
use super::idle::Activity;
use super::port_forward::connection::{Dialer, Ended, read_some};
use super::unread::{Room, UnreadReceiver, UnreadSender};
use super::upgrade::Taken;
use super::websocket::{self, Framing, framed};

/// A channel is a byte, a port has two.
const PORTS_MAX: usize = 128;

/// The ports of a query: `port=80,443&port=8080`.
pub(super) fn ports(query: &Query) -> Result<Vec<u16>, String> {
    let requested = query.all("port");
    if requested.is_empty() {
        return Err("query parameter \"port\" is required".to_owned());
    }
    let mut ports = Vec::new();
    for text in &requested {
        if text.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for port in text.split(',') {
            let port: u16 = port
                .parse()
                .map_err(|error| format!("unable to parse {text:?} as a port: {error}"))?;
            if port == 0 {
                return Err(format!("port {text:?} must be > 0"));
            }
            ports.push(port);
        }
    }
    match ports.len() {
        0..=PORTS_MAX => Ok(ports),
        many => Err(format!(
            "{many} ports at once; no more than {PORTS_MAX} have channels"
        )),
    }
}

/// One port's side of the session.
struct Port {
    number: u16,
    data_channel: u8,
    input: UnreadReceiver,
    output: mpsc::Sender<Bytes>,
}

/// Forwards until the client has gone or every port's connection has ended.
pub(super) async fn serve(
    runtime: &Runtime,
    connection: Taken,
    framing: Framing,
    ports: &[u16],
    dialer: &Dialer,
    activity: &Activity,
) {
    let (mut sink, stream) = websocket::open(connection, framing.head()).await.split();
    let (output, mut outputs) = mpsc::channel::<Bytes>(PIECES_MAX);
    let scope = runtime.child_scope();
    let (room, mut inputs) = (Room::default(), Vec::with_capacity(ports.len()));
    for (data_channel, number) in (0..).step_by(2).zip(ports) {
        let (sender, input) = room.queue();
        inputs.push(sender);
        let port = Port {
            number: *number,
            data_channel,
            input,
            output: output.clone(),
        };
        let (task, dialer) = (runtime.clone(), dialer.clone());
        scope
            .runtime()
            .spawn("forwarded port", port.forward(task, dialer));
    }
    drop(output);
    let reader = scope.runtime().spawn(
        "port channels reader",
        distribute(stream, framing, inputs, activity.clone()),
    );
    while let Some(message) = outputs.recv().await {
        activity.note();
        if sink.send(framing.message(message)).await.is_err() {
            return;
        }
    }
    websocket::part(runtime, sink, reader).await;
}

/// Gives what the client sends to the ports; when it goes, their inputs end.
async fn distribute(
    mut stream: SplitStream<WebSocketStream<websocket::Carried>>,
    framing: Framing,
    inputs: Vec<UnreadSender>,
    activity: Activity,
) {
    while let Some(Ok(message)) = stream.next().await {
        if message.is_close() {
            break;
        }
        let Some(data) = framing.data(message) else {
            continue;
        };
        activity.note();
        let port = match data.first() {
            Some(channel) if channel % 2 == 0 => inputs.get(usize::from(channel / 2)),
            _ => None,
        };
        if let Some(port) = port
            && data.len() > 1
        {
            // A connection that has ended takes no more; the others go on.
            let _ = port.send(&data[1..]).await;
        }
    }
}

impl Port {
    async fn forward(self, runtime: Runtime, dialer: Dialer) {
        let (error_channel, output) = (self.data_channel + 1, self.output.clone());
        for channel in [self.data_channel, error_channel] {
            let first = framed(channel, &self.number.to_le_bytes());
            if output.send(first).await.is_err() {
                return;
            }
        }
        let number = self.number;
        match dialer.connect(&runtime, number).await {
            Ok(socket) => self.join(socket).await,
            Err(reason) => {
                let words = format!("error forwarding port {number} to pod: {reason}");
                // A client that has gone needs no error.
                let _ = output.send(framed(error_channel, words.as_bytes())).await;
            }
        }
    }

    /// Passes bytes until the server in the pod has sent all it has to send.
    async fn join(mut self, socket: TcpStream) {
        let (from, mut to) = socket.into_split();
        let outward = async {
            while let Some(piece) = self.input.recv().await {
                if to.write_all(&piece).await.is_err() {
                    return;
                }
            }
            let _ = to.shutdown().await;
        };
        let (channel, output) = (self.data_channel, &self.output);
        let inward = async {
            // The place comes first: a port whose client does not read keeps no data.
            while from.readable().await.is_ok()
                && let Ok(place) = output.reserve().await
            {
                match read_some(&from) {
                    Ok(Some(piece)) => place.send(framed(channel, &piece)),
                    Ok(None) => {}
                    Err(Ended) => break,
                }
            }
        };
        tokio::pin!(outward, inward);
        tokio::select! {
            biased;
            () = &mut inward => {}
            () = &mut outward => inward.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_or_refused() {
        let read = |text: &str| ports(&Query::parse(text));
        assert_eq!(read("port=80,443&port=8080"), Ok(vec![80, 443, 8080]));
        for (text, words) in [
            ("", "is required"),
            ("port=", "cannot be empty"),
            ("port=80,x", "unable to parse \"80,x\" as a port"),
            ("port=65536", "unable to parse"),
            ("port=0", "must be > 0"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
        let many = vec!["1"; PORTS_MAX + 1].join(",");
        assert!(read(&format!("port={many}")).is_err());
    }
}
