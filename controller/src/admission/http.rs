//! One admission review over HTTP: refusals and their codes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use pitstop_api::condition::truncate;
use pitstop_controller_core::kinds::all;
use pitstop_kit::describe;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Path of the reviews of new Pods, as in the webhook's configuration.
const PODS: &str = "/inject-readiness-gate";
/// Most bytes of a body: as much as the API server accepts of an object.
pub const MAX_BODY: usize = 3 * 1024 * 1024;
/// Most bytes of a small body, which needs no permit of the large ones.
const SMALL_BODY: u64 = 64 * 1024;
/// Most large bodies in memory at a time, which bounds the memory of all connections together.
const LARGE_BODIES: usize = 4;
/// Longest text of a refusal, in characters.
const MAX_TEXT: usize = 1024;
/// Longest time that a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that an answer may take; the API server waits for three seconds.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Paths of all reviews: of each kind of request, and of new Pods.
fn paths() -> impl Iterator<Item = &'static str> {
    all().filter_map(|about| Some(about.review.as_ref()?.path)).chain([PODS])
}

/// Why a request is not answered with a review.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Unknown path.
    #[error("not found: there is {}", paths().collect::<Vec<_>>().join(" and "))]
    Path,
    /// Another method than POST.
    #[error("only POST")]
    Method,
    /// Another content type than JSON.
    #[error("only application/json")]
    ContentType,
    /// The body exceeds [`MAX_BODY`].
    #[error("the body has more than {MAX_BODY} bytes")]
    TooLarge,
    /// The body takes too long.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// The connection ended within the body.
    #[error("the body broke off: {0}")]
    Broken(String),
    /// The body has another shape.
    #[error("the body is no AdmissionReview: {0}")]
    NoReview(#[from] serde_json::Error),
    /// The review has no request.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// The answer takes too long.
    #[error("the review took too long")]
    Stuck,
}

impl Refused {
    fn code(&self) -> StatusCode {
        match self {
            Self::Path => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) | Self::NoReview(_) | Self::NoRequest => StatusCode::BAD_REQUEST,
            Self::Stuck => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        tracing::debug!(why = describe(&self), "webhook request refused");
        // The text may repeat a part of the body.
        (self.code(), format!("{}\n", truncate(&describe(&self), MAX_TEXT))).into_response()
    }
}

/// Answers reviews at all of their [paths].
pub fn router<H, F>(handler: H) -> Router
where
    H: Fn(AdmissionRequest<DynamicObject>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = AdmissionResponse> + Send + 'static,
{
    let bodies = Arc::new(Semaphore::new(LARGE_BODIES));
    let answer = post(move |request: Request| {
        let (bodies, handler) = (Arc::clone(&bodies), handler.clone());
        async move {
            let review = review(request, &bodies).await?;
            let answer = timeout(REVIEW_TIMEOUT, handler(review)).await.map_err(|_| Refused::Stuck)?;
            let json = serde_json::to_vec(&answer.into_review())?;
            Ok::<_, Refused>(([(CONTENT_TYPE, "application/json")], json))
        }
    });
    let routes = paths().fold(Router::new(), |router, path| router.route(path, answer.clone()));
    routes.method_not_allowed_fallback(|| async { Refused::Method }).fallback(|| async { Refused::Path })
}

/// Reads the review from the request. Its bytes are freed before the answer.
async fn review(request: Request, bodies: &Semaphore) -> Result<AdmissionRequest<DynamicObject>, Refused> {
    if !is_json(request.headers().get(CONTENT_TYPE)) {
        return Err(Refused::ContentType);
    }
    let announced = request.body().size_hint().exact();
    if announced.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(Refused::TooLarge);
    }
    let small = announced.is_some_and(|length| length <= SMALL_BODY);
    let reading = async {
        let permit = if small { None } else { bodies.acquire().await.ok() };
        let body = Limited::new(request.into_body(), MAX_BODY).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Refused::TooLarge
            } else {
                Refused::Broken(describe(&*error))
            }
        })?;
        Ok::<_, Refused>((body.to_bytes(), permit))
    };
    let (bytes, _permit) = timeout(BODY_TIMEOUT, reading).await.map_err(|_| Refused::TooSlow)??;
    parse(&bytes)
}

/// Reads the review in a body.
pub fn parse(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>, Refused> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)?;
    review.try_into().map_err(|_| Refused::NoRequest)
}

/// Whether the content type is JSON, whatever its parameters are.
fn is_json(value: Option<&HeaderValue>) -> bool {
    let kind = value.and_then(|value| value.to_str().ok()).and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}
