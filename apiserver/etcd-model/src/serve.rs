//! Requests as they come in and answers as they go out.

use crate::members::Members;
use crate::messages::{
    CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse, header,
};
use crate::refusals;
use crate::signal::Signal;
use crate::store::Command;
use crate::stream;
use prost::Message;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// `--max-request-bytes`, the default.
const MAX_REQUEST_BYTES: usize = 3 << 19;
/// Size above which gRPC itself refuses a message: the request's bound and gRPC's own margin.
const MAX_MESSAGE_BYTES: usize = MAX_REQUEST_BYTES + (512 << 10);
/// The shortest time to live that is granted, in seconds.
const MIN_TTL: i64 = 2;
/// The longest an expired lease is left before it is revoked.
const REVOKED_WITHIN: Duration = Duration::from_millis(1500);

/// One request by its path.
pub(crate) async fn serve(
    members: Arc<Members>,
    cut: Arc<Signal<bool>>,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let answer = async {
        let answer = answer(members, Arc::clone(&cut), &path, request).await;
        // Cut off after it was sent: no client receives it.
        if cut.get() { lost() } else { answer }
    };
    tokio::select! {
        biased;
        () = cut.until(|cut| cut) => lost(),
        answer = answer => answer,
    }
}

fn lost() -> http::Response<Body> {
    refusals::lost().into_http()
}

async fn answer(
    members: Arc<Members>,
    cut: Arc<Signal<bool>>,
    path: &str,
    request: http::Request<Body>,
) -> http::Response<Body> {
    if path != "/etcdserverpb.Watch/Watch" {
        members.requests.fetch_add(1, Ordering::Relaxed);
    }
    match path {
        "/etcdserverpb.KV/Range" => unary(request, |asked| range(Arc::clone(&members), asked)).await,
        "/etcdserverpb.KV/Txn" => unary(request, |asked| txn(Arc::clone(&members), asked)).await,
        "/etcdserverpb.KV/Compact" => unary(request, |asked| compact(Arc::clone(&members), asked)).await,
        "/etcdserverpb.Lease/LeaseGrant" => unary(request, |asked| grant(Arc::clone(&members), asked)).await,
        "/etcdserverpb.Watch/Watch" => {
            let service = tower::service_fn(|asked| watch(Arc::clone(&members), Arc::clone(&cut), asked));
            let codec = ProstCodec::<WatchResponse, WatchRequest>::default();
            Grpc::new(codec).streaming(service, request).await
        }
        other => refusals::unknown_here(other).into_http(),
    }
}

async fn unary<Asked, Answer, F, A>(request: http::Request<Body>, handle: F) -> http::Response<Body>
where
    Asked: Message + Default + Send + 'static,
    Answer: Message + Send + 'static,
    F: FnMut(Request<Asked>) -> A + Send,
    A: Future<Output = Result<Response<Answer>, Status>> + Send,
{
    let codec = ProstCodec::<Answer, Asked>::default();
    let mut grpc = Grpc::new(codec).max_decoding_message_size(MAX_MESSAGE_BYTES);
    grpc.unary(tower::service_fn(handle), request).await
}

/// The way there: which member takes the request, or that none ever saw it.
async fn arrive(members: &Members, metadata: &MetadataMap) -> Result<usize, Status> {
    members.felt.delay(members.felt.faults.delay).await;
    if members.felt.breaks() {
        return Err(refusals::lost());
    }
    let member = members.any();
    if members.is_cut_off(member) && stream::needs_leader(metadata) {
        return Err(refusals::no_leader());
    }
    members.until_cut_off(member, false).await;
    Ok(member)
}

/// The way back: the answer, or nothing but that the connection is gone.
async fn depart<T>(members: &Members, answer: Result<T, Status>) -> Result<Response<T>, Status> {
    members.felt.delay(members.felt.faults.delay).await;
    if members.felt.breaks() {
        return Err(refusals::lost());
    }
    answer.map(Response::new)
}

async fn range(
    members: Arc<Members>,
    asked: Request<RangeRequest>,
) -> Result<Response<RangeResponse>, Status> {
    let member = arrive(&members, asked.metadata()).await?;
    members.applied(member, members.agreed()).await;
    let answer = members.with(member, |state| state.store.range(asked.get_ref()));
    depart(&members, answer).await
}

async fn propose(members: &Members, metadata: &MetadataMap, command: Command) -> Result<TxnResponse, Status> {
    let member = arrive(members, metadata).await?;
    let (length, outcome) = members.agree(command);
    members.applied(member, length).await;
    outcome
}

async fn txn(members: Arc<Members>, asked: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
    let (metadata, _, asked) = asked.into_parts();
    if asked.encoded_len() > MAX_REQUEST_BYTES {
        return Err(refusals::too_large());
    }
    let answer = propose(&members, &metadata, Command::Txn(asked)).await;
    depart(&members, answer).await
}

async fn compact(
    members: Arc<Members>,
    asked: Request<CompactionRequest>,
) -> Result<Response<CompactionResponse>, Status> {
    let command = Command::Compact(asked.get_ref().revision);
    let answer = propose(&members, asked.metadata(), command).await;
    let answer = answer.map(|answer| CompactionResponse {
        header: answer.header,
    });
    depart(&members, answer).await
}

async fn grant(
    members: Arc<Members>,
    asked: Request<LeaseGrantRequest>,
) -> Result<Response<LeaseGrantResponse>, Status> {
    if asked.get_ref().id != 0 {
        return Err(refusals::unknown_here("leases that name themselves"));
    }
    let id = i64::try_from(members.felt.runtime.random_u64() >> 1).unwrap_or(1);
    let ttl = asked.get_ref().ttl.max(MIN_TTL);
    let answer = propose(&members, asked.metadata(), Command::Grant(id)).await;
    if answer.is_ok() {
        let expiring = Arc::clone(&members);
        let seconds = Duration::from_secs(ttl.unsigned_abs());
        let expiry = async move {
            expiring.felt.runtime.sleep(seconds).await;
            expiring.felt.delay(REVOKED_WITHIN).await;
            drop(expiring.agree(Command::Revoke(id)));
        };
        members.felt.runtime.spawn("etcd lease", expiry).detach();
    }
    let answer = answer.map(|_| LeaseGrantResponse {
        header: header(members.revision()),
        id,
        ttl,
        error: String::new(),
    });
    depart(&members, answer).await
}

async fn watch(
    members: Arc<Members>,
    cut: Arc<Signal<bool>>,
    asked: Request<Streaming<WatchRequest>>,
) -> Result<Response<ReceiverStream<Result<WatchResponse, Status>>>, Status> {
    let member = arrive(&members, asked.metadata()).await?;
    let answers = stream::open(members, cut, member, asked).await?;
    Ok(Response::new(ReceiverStream::new(answers)))
}
