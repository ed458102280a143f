// A server of S3 for tests: s3rver, and in front of it what it does not do itself. That checks the
// signature of each request, notes requests in a file, and makes the faults that another file says.
//
//   node server.js MODULES FOLDER
//
// It prints its port, and ends when its standard input does. FOLDER/faults has one line: a kind, how
// many requests go well before it, and how many have the fault then. Of the kind cut-N, the answer
// ends after N bytes of its body; of endless-N, it does not say how many it should have, either.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const path = require('path');

// s3rver hides keys in its tokens by DES, which newer versions of node do not have.
for (const name of ['createCipheriv', 'createDecipheriv']) {
  const make = crypto[name];
  crypto[name] = (kind, key, iv) => kind === 'des'
    ? make('aes-128-cbc', Buffer.concat([key, key]), Buffer.concat([iv, iv])) : make(kind, key, iv);
}

const [modules, folder] = process.argv.slice(2);
const S3rver = require(path.join(modules, 's3rver'));
const files = require(path.join(modules, 'fs-extra'));

// s3rver answers a PUT before the object's file has all its bytes, and tells the file's length to
// who asks then. So an answer waits for the files that are being written.
const writing = new Set();
const createWriteStream = files.createWriteStream;
files.createWriteStream = (...from) => {
  const stream = createWriteStream(...from);
  const closed = new Promise((resolve) => stream.on('close', resolve));
  writing.add(closed);
  closed.then(() => writing.delete(closed));
  return stream;
};
const faultsPath = path.join(folder, 'faults');
const logPath = path.join(folder, 'log');
const accessKey = 'S3RVER';
const secret = 'S3RVER';
let faultsText = '';
let nSeen = 0;

const hmac = (key, text) => crypto.createHmac('sha256', key).update(text).digest();
const sha256 = (text) => crypto.createHash('sha256').update(text).digest('hex');

// What is wrong with a signature: null, or a code of S3.
function findWrong(request) {
  const match = /^AWS4-HMAC-SHA256 Credential=([^/]+)\/([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]+)$/
    .exec(request.headers.authorization || '');
  if (!match)
    return 'AccessDenied';
  const [, key, scope, names, signature] = match;
  const [where, query = ''] = request.url.split('?');
  const headers = names.split(';').map((name) => `${name}:${(request.headers[name] || 'absent').trim()}\n`);
  const canonical = [request.method, where, query.split('&').sort().join('&'), headers.join(''),
    names, request.headers['x-amz-content-sha256']].join('\n');
  const text = ['AWS4-HMAC-SHA256', request.headers['x-amz-date'], scope, sha256(canonical)];
  const signing = scope.split('/').reduce(hmac, 'AWS4' + secret);

  if (key !== accessKey)
    return 'InvalidAccessKeyId';
  return hmac(signing, text.join('\n')).toString('hex') === signature
    ? null : 'SignatureDoesNotMatch';
}

// The fault of the next request.
function findFault() {
  let text = '';
  try {
    text = fs.readFileSync(faultsPath, 'utf8');
  } catch (error) {
    // none
  }
  if (text !== faultsText) {
    faultsText = text;
    nSeen = 0;
  }
  const [kind, before, n] = text.trim().split(/\s+/);
  const number = nSeen++;
  return kind && number >= Number(before) && number < Number(before) + Number(n) ? kind : null;
}

// As S3 says it: such a text may be longer than the object that was asked for.
function refuse(response, status, code) {
  const text = `<?xml version="1.0"?><Error><Code>${code}</Code><Message>of a test &amp; no other</Message>`
    + `<RequestId>0123456789ABCDEF</RequestId><HostId>${'host'.repeat(100)}</HostId></Error>`;
  response.writeHead(status, { 'Content-Type': 'application/xml', 'Content-Length': text.length });
  response.end(response.req.method === 'HEAD' ? undefined : text);
}

// An answer that ends with its connection, after n bytes.
function endWithConnection(answer, all, n, response) {
  response.socket.end(Buffer.concat([
    Buffer.from(`HTTP/1.1 ${answer.statusCode} OK\r\nConnection: close\r\n\r\n`),
    all.subarray(0, n)]));
}

function forward(port, request, body, response, fault) {
  // Each has a connection of its own: s3rver closes those that are not used for a while.
  const onward = http.request({ host: '127.0.0.1', port, method: request.method, path: request.url,
    headers: request.headers, agent: false }, (answer) => {
    const parts = [];
    answer.on('data', (part) => parts.push(part));
    answer.on('end', async () => {
      const all = Buffer.concat(parts);
      const [kind, nBytes = Math.floor(all.length / 2)] = (fault || '').split('-');
      await Promise.all(writing);
      if (fault === 'silent') {
        // It was done, and nobody hears of it.
        response.socket.destroy();
        return;
      }
      if (kind === 'endless') {
        endWithConnection(answer, all, Number(nBytes), response);
        return;
      }
      delete answer.headers.connection;
      response.writeHead(answer.statusCode, answer.headers);
      if (kind === 'cut') {
        response.write(all.subarray(0, Number(nBytes)));
        setTimeout(() => response.socket.destroy(), 10);
      } else {
        response.end(all);
      }
    });
  });
  onward.end(body);
}

function handle(port, request, response) {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const fault = findFault();
    const wrong = findWrong(request);
    fs.appendFileSync(logPath, `${request.method} ${request.url} ${fault || wrong || 'good'}\n`);
    if (fault === 'drop')
      request.socket.destroy();
    else if (fault === '500')
      refuse(response, 500, 'InternalError');
    else if (fault === '503')
      refuse(response, 503, 'SlowDown');
    else if (fault === 'slow')
      refuse(response, 400, 'RequestTimeout');
    else if (fault === 'deny')
      refuse(response, 403, 'AccessDenied');
    else if (wrong)
      refuse(response, 403, wrong);
    else if (fault === 'late')
      setTimeout(() => forward(port, request, Buffer.concat(parts), response, fault), 2000);
    else
      forward(port, request, Buffer.concat(parts), response, fault);
  });
}

async function main() {
  const server = new S3rver({ port: 0, address: '127.0.0.1', silent: true,
    directory: path.join(folder, 'data'), configureBuckets: [{ name: 'snapshots' }] });
  const { port } = await server.run();
  const front = http.createServer((request, response) => handle(port, request, response));
  front.listen(0, '127.0.0.1', () => console.log(front.address().port));
  process.stdin.on('end', () => process.exit(0));
  process.stdin.resume();
}

main();
