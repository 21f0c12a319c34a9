# The image: one static program and what it reads, no shell. `make docker` builds it.

# The builder runs on the machine's own architecture and compiles for the other.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
WORKDIR /src
# Before the sources, so that a change in them does not fetch the modules again.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=$VERSION" \
      -o /out/holdfast ./cmd/holdfast \
    && mkdir -p /out/data /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# Go carries the time zones in one file; nothing has to be installed for them.
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /
COPY --from=build /out/holdfast /
# Empty directories that the program may write: the database, and SQLite's temporary files.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build --chown=65532:65532 /out/tmp /tmp

# 0.0.0.0 is the inside of the container. Beyond loopback Holdfast starts only with HOLDFAST_API_KEYS set, so that nobody
# publishes an open one by accident.
ENV ZONEINFO=/zoneinfo.zip \
    HOLDFAST_ADDR=0.0.0.0:8088 \
    HOLDFAST_DATABASE_URL=sqlite:///data/holdfast.db
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 8088
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/holdfast", "healthcheck"]
ENTRYPOINT ["/holdfast"]
CMD ["serve"]
