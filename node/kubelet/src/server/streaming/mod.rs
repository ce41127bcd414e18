//! stub
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use super::routes::{Body, Query, text};
use crate::managers::ManagerContext;
pub(super) async fn exec(_c: &ManagerContext, _r: Request<Incoming>, _n: &str, _p: &str, _k: &str, _q: &Query) -> Response<Body> { text(StatusCode::NOT_IMPLEMENTED, "exec") }
pub(super) async fn attach(_c: &ManagerContext, _r: Request<Incoming>, _n: &str, _p: &str, _k: &str, _q: &Query) -> Response<Body> { text(StatusCode::NOT_IMPLEMENTED, "attach") }
pub(super) async fn port_forward(_c: &ManagerContext, _r: Request<Incoming>, _n: &str, _p: &str) -> Response<Body> { text(StatusCode::NOT_IMPLEMENTED, "pf") }
