<?php
// php-stomp (the extension stomp of PECL). Orders: see adapter.py.

// Its default of 2 s is too short for a busy machine.
const SECONDS = 30;
ini_set("stomp.default_read_timeout_sec", (string) SECONDS);
ini_set("stomp.default_connection_timeout_sec", (string) SECONDS);

class NotThere extends Exception {}

/** One connection. It reads only when it is asked to. */
class Link
{
    public array $connected = [];
    private Stomp $stomp;
    private array $messages = [];
    private array $waiting = [];

    public function __construct(array $order, private string $version = "")
    {
        $this->version = $order["version"];
        $headers = $this->version === "1.0" ? [] : ["accept-version" => $this->version, "host" => $order["vhost"]];
        $broker = "tcp://{$order["host"]}:{$order["port"]}";
        $this->stomp = new Stomp($broker, $order["login"], $order["passcode"], $headers);
        $this->connected = ["session" => $this->stomp->getSessionId()];
        if ($order["heart_beat"] !== [0, 0]) {
            throw new NotThere("it has no heart-beats");
        }
    }

    public function send(array $order): void
    {
        $headers = $order["headers"];
        if ($order["transaction"]) {
            $headers["transaction"] = $order["transaction"];
        }
        if ($order["receipt"]) {
            $headers["receipt"] = uniqid();
        }
        if (!$this->stomp->send($order["destination"], base64_decode($order["body"]), $headers)) {
            throw new Exception("not sent: " . $this->stomp->error());
        }
    }

    public function subscribe(array $order): void
    {
        $headers = $order["headers"] + ["id" => $order["id"], "ack" => $order["ack"], "receipt" => uniqid()];
        if (!$this->stomp->subscribe($order["destination"], $headers)) {
            throw new Exception("not subscribed: " . $this->stomp->error());
        }
    }

    public function receive(array $order): array
    {
        $end = microtime(true) + $order["seconds"];
        $id = $order["id"];
        while (count($this->waiting[$id] ?? []) < $order["count"] && ($left = $end - microtime(true)) > 0) {
            $this->stomp->setReadTimeout((int) $left, (int) (1e6 * ($left - (int) $left)));
            $frame = $this->stomp->readFrame();
            if ($frame === false) {
                continue;
            }
            $this->messages[] = $frame;
            $this->waiting[$frame->headers["subscription"]][] = [
                "handle" => (string) (count($this->messages) - 1),
                "headers" => (object) $frame->headers,
                "body" => base64_encode($frame->body ?? ""),
            ];
        }
        $this->stomp->setReadTimeout(SECONDS); // for the receipts of what follows
        return ["messages" => array_splice($this->waiting[$id], 0, $order["count"])];
    }

    /** begin, commit, abort, ack and nack: the extension has the same names. */
    public function __call(string $name, array $arguments): void
    {
        $transaction = $arguments[0]["transaction"];
        if (isset($arguments[0]["handle"])) {
            $frame = $this->messages[(int) $arguments[0]["handle"]];
            $headers = ["subscription" => $frame->headers["subscription"]];
            $this->stomp->$name($frame, $transaction ? $headers + ["transaction" => $transaction] : $headers);
        } else {
            $this->stomp->$name($transaction);
        }
    }

    public function unsubscribe(array $order): void
    {
        $this->stomp->unsubscribe($order["destination"], ["id" => $order["id"]]);
    }

    public function alive(array $order): array
    {
        return ["alive" => $this->stomp->error() === false];
    }
}

$links = [];
while (($line = fgets(STDIN)) !== false) {
    $order = json_decode($line, true);
    try {
        if ($order["do"] === "open") {
            $links[$order["link"]] = new Link($order);
            $answer = $links[$order["link"]]->connected;
        } elseif ($order["do"] === "about") {
            $answer = ["library" => stomp_version()];
        } elseif ($order["do"] === "close") {
            unset($links[$order["link"]]); // its destructor sends DISCONNECT
            $answer = [];
        } else {
            $answer = $links[$order["link"]]->{$order["do"]}($order) ?? [];
        }
        $said = ["ok" => (object) $answer];
    } catch (NotThere $e) {
        $said = ["na" => $e->getMessage()];
    } catch (Throwable $e) {
        $details = $e instanceof StompException ? " " . $e->getDetails() : "";
        $said = ["error" => get_class($e) . ": " . $e->getMessage() . $details];
    }
    echo json_encode($said, JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR), "\n";
}
