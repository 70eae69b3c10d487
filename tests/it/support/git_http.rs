//! A git server on the loopback that asks who is there: `git http-backend` behind a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Serves the repositories of a directory until it is dropped.
pub(crate) struct GitServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl GitServer {
    /// To whoever sends `login`, which is base64 of `USER:PASSWORD`.
    pub(crate) fn start(root: &Path, login: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (root, stop) = (root.to_owned(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let root = root.clone();
                // Whoever asked may be gone already.
                std::thread::spawn(move || {
                    serve(&stream.unwrap(), &root, login).unwrap_or_default();
                });
            }
        });
        Self { address, is_over }
    }

    /// The URL of a repository, for a user and password that may be none.
    pub(crate) fn url(&self, login: &str, repository: &str) -> String {
        format!("http://{login}{}/{repository}", self.address)
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        drop(TcpStream::connect(self.address));
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Self {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            let header = (name.to_ascii_lowercase(), value.to_owned());
            request.headers.push(header);
        }
        let length = request.header("content-length").parse().unwrap_or(0);
        request.body.resize(length, 0);
        reader.read_exact(&mut request.body)?;
        Ok(request)
    }

    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map_or("", |(_, value)| value)
    }
}

fn serve(mut stream: &TcpStream, root: &Path, login: &str) -> std::io::Result<()> {
    let request = Request::read(stream)?;
    if request.header("authorization") != format!("Basic {login}") {
        return stream.write_all(
            b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\n\
              Content-Length: 0\r\nConnection: close\r\n\r\n",
        );
    }
    let answer = backend(root, &request)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n")?;
    stream.write_all(&answer)
}

/// What the backend answers: headers and a body.
#[expect(
    clippy::disallowed_methods,
    reason = "git as a server, which the program never is"
)]
fn backend(root: &Path, request: &Request) -> std::io::Result<Vec<u8>> {
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_PROJECT_ROOT", PathBuf::from(root))
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_USER", "somebody")
        .env("REQUEST_METHOD", &request.method)
        .env("PATH_INFO", &request.path)
        .env("QUERY_STRING", &request.query)
        .env("CONTENT_TYPE", request.header("content-type"))
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", request.header("content-encoding"))
        .env("HTTP_GIT_PROTOCOL", request.header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let written = child.stdin.take().unwrap().write_all(&request.body);
    let output = child.wait_with_output()?;
    written.map(|()| output.stdout)
}
