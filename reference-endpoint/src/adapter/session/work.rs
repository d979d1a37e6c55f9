//! Work of a session, its streams, and what can be asked about them.

use serde_json::{Value, json};

use super::super::answers::{self, Code, Failure};
use super::super::engine::{Todo, Work};
use super::super::messages::{OpenStream, Piece, Stats};
use super::super::posts::{Local, Post, PostWork, SrqPost};
use super::{Session, failure, out_of_bounds, range};
use crate::core::{self, Buffer, Data, Misuse, WorkKind};

impl Session {
    pub(super) fn buffer(&mut self, piece: &Piece) -> Result<Buffer, Failure> {
        self.bytes(piece)?;
        let place = range(piece.offset, piece.len).ok_or_else(|| out_of_bounds(piece.mr, 0))?;
        Ok(Buffer {
            mr: piece.mr,
            offset: place.start,
            len: place.len(),
        })
    }

    pub(super) fn post_recv(&mut self, now: u64, post: &Post) -> Result<Value, Failure> {
        let buffer = self.buffer(&Piece {
            mr: post.mr,
            offset: post.offset,
            len: post.len,
        })?;
        let work = Work {
            conn: post.conn,
            stream: post.stream,
            wr_id: post.wr_id,
            kind: WorkKind::Recv,
            todo: Todo::Receive(buffer),
        };
        self.engine()?.post(now, &work).map_err(failure)?;
        Ok(json!({}))
    }

    pub(super) fn post_srq_recv(&mut self, now: u64, post: &SrqPost) -> Result<Value, Failure> {
        let srq = self.srq()?;
        let buffer = self.buffer(&Piece {
            mr: post.mr,
            offset: post.offset,
            len: post.len,
        })?;
        let endpoint = self.endpoint()?;
        endpoint
            .post_srq_recv(now, srq, post.wr_id, buffer)
            .map_err(failure)?;
        Ok(json!({}))
    }

    pub(super) fn srq(&mut self) -> Result<u32, Failure> {
        self.endpoint()?;
        let srq = self.open.as_ref().and_then(|open| open.stream.srq);
        srq.ok_or_else(|| Failure::new(Code::Misuse, "it was opened without a shared queue"))
    }

    pub(super) fn post_work(&mut self, now: u64, post: PostWork) -> Result<Value, Failure> {
        let data = match post.local {
            Local::Inline(bytes) => Data::Inline(bytes.into()),
            Local::Piece(piece) => Data::Buffer(self.buffer(&piece)?),
        };
        let request = core::Work {
            wr_id: post.of.wr_id,
            op: post.op,
            data,
            signalled: post.flags.signalled,
            solicited: post.flags.solicited,
            fence: post.flags.fence,
        };
        let work = Work {
            conn: post.of.conn,
            stream: post.of.stream,
            wr_id: post.of.wr_id,
            kind: request.op.kind(),
            todo: Todo::Request(request),
        };
        self.engine()?.post(now, &work).map_err(failure)?;
        Ok(json!({}))
    }

    pub(super) fn open_stream(&mut self, now: u64, of: &OpenStream) -> Result<Value, Failure> {
        self.endpoint()?;
        let opened = self.open.as_ref().map(|open| open.stream);
        let mut stream = opened.unwrap_or_default();
        stream.domain = of.domain.unwrap_or(stream.domain);
        let endpoint = self.endpoint()?;
        let stream = endpoint
            .open_stream(now, of.conn, stream)
            .map_err(failure)?;
        Ok(json!({"stream": stream}))
    }

    pub(super) fn stats(&mut self, of: &Stats) -> Result<Value, Failure> {
        let endpoint = self.endpoint()?;
        let connection = endpoint
            .connection_stats(of.conn)
            .ok_or_else(|| failure(Misuse::NoConnection(of.conn)))?;
        let mut all = json!({"connection": answers::connection(&connection)});
        if let Some(path) = of.path {
            let stats = endpoint.path_stats(of.conn, path);
            let stats = stats.ok_or_else(|| failure(Misuse::NoPath(path)))?;
            all["path"] = answers::path(&stats);
        }
        if let Some(stream) = of.stream {
            let stats = endpoint.stream_stats(of.conn, stream);
            let stats = stats.ok_or_else(|| failure(Misuse::NoStream(stream)))?;
            all["stream"] = answers::stream(&stats);
        }
        Ok(all)
    }
}
